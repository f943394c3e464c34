//! Who came: what the agent remembers of every address, to judge the next request by it.

use crate::journal::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Requests that are kept of a visitor as evidence.
const EVIDENCE: usize = 8;

/// What is remembered of one address.
#[derive(Debug, Clone)]
pub struct Visitor {
    /// When the first request came.
    pub first_at: u64,
    /// When the last one did.
    pub last_at: u64,
    /// All of them.
    pub requests: u64,
    /// Visits that broke a rule.
    pub broken: u64,
    /// The headers of the last request.
    pub headers: BTreeMap<String, String>,
    /// The last requests that broke a rule.
    pub evidence: VecDeque<String>,
}

/// All visitors that are remembered.
#[derive(Debug)]
pub struct Visitors {
    by_address: HashMap<String, Visitor>,
    /// In the order in which they first came; the one that came first is forgotten first.
    order: VecDeque<String>,
    most: usize,
}

impl Visitors {
    /// None yet, and never more than `most`.
    pub fn new(most: usize) -> Visitors {
        Visitors { by_address: HashMap::new(), order: VecDeque::new(), most }
    }

    /// Remembers a request.
    pub fn note(&mut self, entry: &Entry) {
        if !self.by_address.contains_key(&entry.address) {
            self.make_room();
            self.order.push_back(entry.address.clone());
        }
        let visitor = self.by_address.entry(entry.address.clone()).or_insert_with(|| Visitor {
            first_at: entry.at,
            last_at: entry.at,
            requests: 0,
            broken: 0,
            headers: BTreeMap::new(),
            evidence: VecDeque::new(),
        });
        visitor.last_at = entry.at;
        visitor.requests += 1;
        visitor.headers.clone_from(&entry.headers);
        if let Some(rule) = &entry.rule {
            visitor.broken += 1;
            if visitor.evidence.len() == EVIDENCE {
                visitor.evidence.pop_front();
            }
            visitor.evidence.push_back(format!("{rule}: {} {}", entry.method, entry.path));
        }
    }

    /// The worst of them, with their addresses.
    pub fn worst(&self, most: usize) -> Vec<(String, Visitor)> {
        let mut found: Vec<(&String, &Visitor)> = self.by_address.iter().collect();
        found.sort_by(|(one, a), (other, b)| b.broken.cmp(&a.broken).then(one.cmp(other)));
        found.into_iter().take(most).map(|(address, visitor)| (address.clone(), visitor.clone())).collect()
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.by_address.len()
    }

    fn make_room(&mut self) {
        while self.order.len() >= self.most {
            match self.order.pop_front() {
                Some(address) => drop(self.by_address.remove(&address)),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(address: &str, rule: Option<&str>) -> Entry {
        Entry {
            at: 7,
            address: address.into(),
            method: "GET".into(),
            path: "/.env".into(),
            status: 404,
            rule: rule.map(str::to_owned),
            headers: BTreeMap::new(),
        }
    }

    #[test]
    fn the_first_is_forgotten_first_and_evidence_is_bounded() {
        let mut visitors = Visitors::new(2);
        for _ in 0..20 {
            visitors.note(&entry("a", Some("secrets")));
        }
        visitors.note(&entry("b", None));
        let worst = visitors.worst(9);
        assert_eq!((worst[0].0.as_str(), worst[0].1.broken), ("a", 20));
        assert_eq!(worst[0].1.evidence.len(), EVIDENCE);
        visitors.note(&entry("c", None));
        let names: Vec<String> = visitors.worst(9).into_iter().map(|(name, _)| name).collect();
        assert_eq!((names, visitors.count()), (vec!["b".into(), "c".into()], 2));
    }
}
