//! docs/check.md has a section for each finding.

use ebb_deploy::check::Id;

#[test]
fn names_are_unique_and_all_documented() {
    let page = include_str!("../../../docs/check.md");
    let mut names: Vec<&str> = Id::ALL.iter().map(|id| id.name()).collect();
    for name in &names {
        assert!(page.contains(&format!("### {name}\n")), "{name} has no section");
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Id::ALL.len());
}
