//! An admission policy for a cluster: it puts ebbmalloc into pods with the label `ebbmalloc: preload`, and marks them
//! with `ebbmalloc-preloaded`. Kubernetes evaluates it from 1.36; Kyverno does in older clusters.
//!
//! The pod gets our image as a read-only volume and `LD_PRELOAD` in each container. An existing value gets ours
//! appended; a container whose value comes from elsewhere is left alone. A second run of the policy changes nothing.
//! ci/cluster.py asserts all this on a real API server.

use std::fmt;

use ebb_allocators::Allocator;
use serde::Serialize;

use super::desired::IMAGE;

/// Who evaluates the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The API server: MutatingAdmissionPolicy.
    Kubernetes,
    /// Kyverno: MutatingPolicy.
    Kyverno,
}

/// Our published image of this version.
pub fn published_image() -> String {
    format!("{IMAGE}:{}", env!("CARGO_PKG_VERSION"))
}

/// Whether `image` may go into the policy: a name of an image has no sign that ends a string.
pub fn is_image(image: &str) -> bool {
    let may = |it: char| it.is_ascii_alphanumeric() || "._-/:@+".contains(it);
    image.starts_with(|it: char| it.is_ascii_alphanumeric()) && image.chars().all(may)
}

/// The policy as YAML, with its binding where the engine needs one. `percent` of the pods that ask get it.
pub fn text(engine: Engine, image: &str, percent: u8) -> String {
    let head = match engine {
        Engine::Kubernetes => KUBERNETES,
        Engine::Kyverno => KYVERNO,
    };
    let share = if percent < 100 { SHARE } else { "" };
    let spec = SPEC.replace("SHARE\n", share);
    let percent = percent.to_string();
    let text = format!("{head}{spec}");
    let text = text.replace("PERCENT", &percent).replace("IMAGE", image);
    if engine == Engine::Kubernetes { text + BINDING } else { text }
}

/// What the policy would do for a container, from what the agent knows of its largest process; the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fit {
    /// ebbmalloc would serve its `malloc`.
    Fits,
    /// ebbmalloc serves it.
    There,
    /// It has not been looked at.
    Unknown,
    /// A preload would have no effect.
    GainsNothing,
    /// The pod's variable could replace one of the image.
    MayBreak,
}

impl Fit {
    /// From the labels of `ebb_group_info`, and whether the agent has looked at it.
    pub fn new(allocator: &str, in_charge: &str, is_looked_at: bool) -> Self {
        let known = Allocator::from_name(allocator);
        match (known, in_charge) {
            (_, "no") => Fit::MayBreak,
            (Some(Allocator::Ebbmalloc), _) => Fit::There,
            (Some(allocator), _) if allocator.is_of_libc() => Fit::Fits,
            (Some(_), _) => Fit::MayBreak,
            (None, _) if !is_looked_at => Fit::Unknown,
            (None, _) => Fit::GainsNothing,
        }
    }

    /// The reason, and what to do.
    pub fn why(self) -> &'static str {
        match self {
            Fit::Fits => "the C library's malloc serves it, which a preload replaces, unless the program is set-uid",
            Fit::There => "ebbmalloc serves it already",
            Fit::Unknown => "the agent has not looked at it yet",
            Fit::GainsNothing => {
                "a preload does not reach its allocator: a static or Go program, or one with an allocator inside"
            }
            Fit::MayBreak => {
                "it has another allocator: if the image's LD_PRELOAD brings it, the pod's replaces it; if the program does, ebbmalloc \
                 gains nothing. ebb check in the pod says which"
            }
        }
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Fit::Fits => "fits",
            Fit::There => "there",
            Fit::Unknown => "unknown",
            Fit::GainsNothing => "gains nothing",
            Fit::MayBreak => "may break",
        })
    }
}

const KUBERNETES: &str = "\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  name: ebbmalloc
spec:
  reinvocationPolicy: IfNeeded
";

const BINDING: &str = "\
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata:
  name: ebbmalloc
spec:
  policyName: ebbmalloc
";

// Kyverno would change the templates in Deployments and the like too; a rollout would then follow from the policy.
const KYVERNO: &str = "\
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata:
  name: ebbmalloc
spec:
  autogen:
    podControllers:
      controllers: []
";

// The weights spread the characters that Kubernetes uses over 0 to 99 with an error of 0.05 %.
const SHARE: &str = r#"    # PERCENT % of the pods, by their name, or by the suffix of the token's volume where the name does not exist yet.
    - name: share
      expression: >-
        [object.metadata.?name.orValue('') != '' ? object.metadata.name :
          object.spec.?volumes.orValue([]).filter(v, v.name.startsWith('kube-api-access-')).map(v, v.name).join('')]
        .exists(key, key.size() >= 5 &&
          [7, 29, 83, 37, 61].transformList(i, weight,
            weight * '0123456789abcdefghijklmnopqrstuvwxyz-.'.indexOf(key.charAt(key.size() - 5 + i))).sum() % 100 < PERCENT)
"#;

const SPEC: &str = r#"  # A pod starts without ebbmalloc where this policy fails.
  failurePolicy: Ignore
  matchConstraints:
    objectSelector:
      matchLabels:
        ebbmalloc: preload
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [CREATE]
        resources: [pods]
  matchConditions:
    - name: linux
      expression: object.spec.?os.?name.orValue('linux') == 'linux'
    # Not where ebb fix has written an init container into the manifest.
    - name: unclaimed
      expression: "!object.spec.?volumes.orValue([]).exists(v, v.name == 'ebbmalloc' && !has(v.image))"
SHARE
  variables:
    - name: preload
      expression: "{'name': 'LD_PRELOAD', 'value': '/opt/ebbmalloc/usr/local/lib/libebbmalloc.so'}"
    - name: mount
      expression: "{'name': dyn('ebbmalloc'), 'mountPath': dyn('/opt/ebbmalloc'), 'readOnly': dyn(true)}"
    - name: volume
      expression: "{'name': dyn('ebbmalloc'), 'image': dyn({'reference': 'IMAGE', 'pullPolicy': 'IfNotPresent'})}"
    - name: has_volume
      expression: object.spec.?volumes.orValue([]).exists(v, v.name == 'ebbmalloc')
    # The label ebbmalloc-skip names containers, with dots between.
    - name: skipped
      expression: object.metadata.?labels[?'ebbmalloc-skip'].orValue('').split('.')
    # Containers that run as long as the pod, with their paths.
    - name: containers
      expression: >-
        object.spec.containers.transformList(i, c, {'path': dyn('/spec/containers/' + string(i)), 'it': dyn(c)}) +
        object.spec.?initContainers.orValue([]).transformList(i, c, c.?restartPolicy.orValue('') == 'Always',
          {'path': dyn('/spec/initContainers/' + string(i)), 'it': dyn(c)})
    # Those that get it, each with the numbers of its entries of LD_PRELOAD.
    - name: chosen
      expression: >-
        variables.containers.filter(c,
          !(c.it.name in variables.skipped) &&
          !c.it.?volumeMounts.orValue([]).exists(m, m.name == 'ebbmalloc' || m.mountPath == '/opt/ebbmalloc') &&
          !c.it.?env.orValue([]).exists(e, e.name == 'LD_PRELOAD' &&
            (has(e.valueFrom) || e.?value.orValue('').contains('libebbmalloc'))))
        .map(c, {
          'path': c.path,
          'it': c.it,
          'at': dyn(c.it.?env.orValue([]).transformList(i, e, e.name == 'LD_PRELOAD', i))})
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          variables.chosen.map(c, c.at.size() > 0 ?
            JSONPatch{op: 'add', path: c.path + '/env/' + string(c.at[c.at.size() - 1]) + '/value', value:
              [string(c.it.env[c.at[c.at.size() - 1]].?value.orValue('')), variables.preload.value].filter(it, it != '').join(':')} :
            has(c.it.env) ?
            JSONPatch{op: 'add', path: c.path + '/env/-', value: variables.preload} :
            JSONPatch{op: 'add', path: c.path + '/env', value: [variables.preload]}) +
          variables.chosen.map(c, has(c.it.volumeMounts) ?
            JSONPatch{op: 'add', path: c.path + '/volumeMounts/-', value: variables.mount} :
            JSONPatch{op: 'add', path: c.path + '/volumeMounts', value: [variables.mount]}) +
          (variables.chosen.size() == 0 ? [] :
            [JSONPatch{op: 'add', path: '/metadata/labels/ebbmalloc-preloaded', value: 'true'}]) +
          (variables.chosen.size() == 0 || variables.has_volume ? [] : [has(object.spec.volumes) ?
            JSONPatch{op: 'add', path: '/spec/volumes/-', value: variables.volume} :
            JSONPatch{op: 'add', path: '/spec/volumes', value: [variables.volume]}])
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::declared::yaml;

    fn spec(text: &str) -> &str {
        let start = text.find("  # A pod starts").unwrap();
        text[start..].split("---\n").next().unwrap()
    }

    #[test]
    fn both_engines_get_the_same_rules() {
        let of_cluster = text(Engine::Kubernetes, "r/i:1", 10);
        let of_kyverno = text(Engine::Kyverno, "r/i:1", 10);
        assert_eq!(spec(&of_cluster), spec(&of_kyverno));
        assert_eq!(yaml::parse(&of_cluster).unwrap().roots.len(), 2);
        assert_eq!(yaml::parse(&of_kyverno).unwrap().roots.len(), 1);
        for placeholder in ["SHARE", "PERCENT", "IMAGE"] {
            assert!(!of_cluster.contains(placeholder), "{of_cluster}");
        }
    }

    #[test]
    fn a_share_is_a_condition_and_all_is_none() {
        assert!(text(Engine::Kubernetes, "i", 10).contains("% 100 < 10)"));
        assert!(!text(Engine::Kubernetes, "i", 100).contains("name: share"));
    }

    #[test]
    fn what_the_agent_knows_says_whether_it_fits() {
        for (allocator, in_charge, is_looked_at, fit) in [
            ("glibc", "yes", true, Fit::Fits),
            ("musl", "unknown", true, Fit::Fits),
            ("ebbmalloc", "yes", true, Fit::There),
            ("jemalloc", "yes", true, Fit::MayBreak),
            ("glibc", "no", true, Fit::MayBreak),
            ("", "unknown", false, Fit::Unknown),
            ("", "unknown", true, Fit::GainsNothing),
            ("mesh", "yes", true, Fit::GainsNothing),
        ] {
            assert_eq!(Fit::new(allocator, in_charge, is_looked_at), fit, "{allocator} {in_charge}");
        }
    }

    #[test]
    fn only_names_of_images_go_into_the_text() {
        assert!(is_image(&published_image()) && is_image("localhost:5000/a/b@sha256:0f"));
        for text in ["", "-a", "a'b", "a b", "a\nb", "a{b}"] {
            assert!(!is_image(text), "{text:?}");
        }
    }
}
