//! Steps in a series that never ends, in bounded memory.

use std::collections::VecDeque;

use super::{LEAST_POINTS, LEAST_WIDTH, Step, steps};

/// Fewer points are not searched: many searches of few points find steps that are none.
const SEARCHED: usize = 2 * LEAST_POINTS;
/// The newest points, which are searched.
const KEPT: usize = 4 * LEAST_POINTS;

/// Keeps the newest points of a series, and reports each step of it once. A step counts when three searches in a row find it, so
/// it is reported about 100 points after it happened, and none before the 520th point.
#[derive(Clone, Debug)]
pub struct Monitor {
    least: f64,
    points: VecDeque<(f64, f64)>,
    /// Points since the last search.
    new: usize,
    /// What the last searches found, the newest in front.
    before: [Vec<Step>; 2],
    /// Times of the reported steps, as long as their points are kept.
    reported: Vec<f64>,
}

impl Monitor {
    /// For steps of at least `least`.
    pub fn new(least: f64) -> Self {
        let points = VecDeque::with_capacity(KEPT);
        Self { least, points, new: 0, before: Default::default(), reported: Vec::new() }
    }

    /// Adds a point of later time. Returns the steps that are certain since.
    pub fn add(&mut self, at: f64, value: f64) -> Vec<Step> {
        if self.points.len() == KEPT {
            self.points.pop_front();
        }
        self.points.push_back((at, value));
        self.new += 1;
        if self.new < LEAST_WIDTH || self.points.len() < SEARCHED {
            return Vec::new();
        }
        self.new = 0;
        let points = self.points.make_contiguous();
        let found = steps(points, self.least);
        let (first, last) = (points[0].0, points[points.len() - 1].0);
        let near = (last - first) / (points.len() - 1) as f64 * LEAST_WIDTH as f64;
        let is_at = |time: f64| move |other: &f64| (other - time).abs() <= near;
        self.reported.retain(|time| *time + near >= first);
        let mut certain = found.clone();
        certain.retain(|step| {
            self.before.iter().all(|before| before.iter().any(|it| is_at(step.at)(&it.at)))
                && !self.reported.iter().any(is_at(step.at))
        });
        self.reported.extend(certain.iter().map(|step| step.at));
        self.before.rotate_right(1);
        self.before[0] = found;
        certain
    }
}
