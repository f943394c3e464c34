//! The HorizontalPodAutoscaler, with its default behaviour.
//!
//! Source: Kubernetes documentation, "Horizontal Pod Autoscaling" (kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale):
//! "Algorithm details", "Stabilization window", "Default behavior".

use std::collections::VecDeque;

/// Time between two decisions (`--horizontal-pod-autoscaler-sync-period`).
pub const SYNC_S: f64 = 15.0;
/// A ratio so near to 1 changes nothing (`--horizontal-pod-autoscaler-tolerance`).
const TOLERANCE: f64 = 0.1;
/// Fewer replicas only where no decision of this time wanted more (`scaleDown.stabilizationWindowSeconds`).
const STABILISATION_S: f64 = 300.0;
/// In each period of 15 s (one decision) so many replicas are added, or as many as there are, whichever is more
/// (`scaleUp.policies`).
const ADDED: u32 = 4;

/// An autoscaler and its replicas.
#[derive(Clone, Debug)]
pub struct Horizontal {
    replicas: u32,
    min: u32,
    max: u32,
    /// Earlier decisions, before they were stabilised.
    wanted: VecDeque<(f64, u32)>,
}

impl Horizontal {
    /// One with so many replicas, within its bounds.
    pub fn new(replicas: u32, min: u32, max: u32) -> Self {
        let replicas = replicas.clamp(min, max);
        Self { replicas, min, max, wanted: VecDeque::from([(0.0, replicas)]) }
    }

    /// Replicas now.
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Decides from the mean memory of a replica; returns the new number.
    pub fn step(&mut self, at_s: f64, mean: f64, target: f64) -> u32 {
        let wanted = desired(self.replicas, mean, target);
        self.wanted.push_back((at_s, wanted));
        while self.wanted.front().is_some_and(|(then, _)| at_s - then > STABILISATION_S) {
            self.wanted.pop_front();
        }
        let most = self.wanted.iter().map(|(_, wanted)| *wanted).max().unwrap_or(wanted);
        let stable = if wanted > self.replicas { wanted } else { most.min(self.replicas) };
        let reachable = (self.replicas + ADDED).max(2 * self.replicas);
        self.replicas = stable.min(reachable).clamp(self.min, self.max);
        self.replicas
    }
}

/// `ceil(currentReplicas * currentMetricValue / desiredMetricValue)`.
pub(super) fn desired(replicas: u32, mean: f64, target: f64) -> u32 {
    let ratio = mean / target;
    if (ratio - 1.0).abs() <= TOLERANCE { replicas } else { (f64::from(replicas) * ratio).ceil() as u32 }
}
