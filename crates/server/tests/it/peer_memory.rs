//! `docs/reference/peer-memory.md` names the constants that bound what peers send.

use std::path::Path;

#[test]
fn the_page_names_constants_as_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let page = read("docs/reference/peer-memory.md");
    let rows = page.lines().filter_map(|line| line.strip_suffix("` |"));
    let mut named = 0;
    for row in rows {
        let cell = row.rsplit("| `").next().expect("a row has cells");
        let (path, constant) = cell.split_once("` `").expect("a file and a constant");
        // A constant, or a field of one.
        let is_it = |line: &str| match constant.split_once(" = ") {
            Some((name, value)) => {
                line.contains(&format!("const {name}: ")) && line.ends_with(&format!(" = {value};"))
            }
            None => line.trim() == format!("{constant},"),
        };
        let is_there = read(path).lines().any(is_it);
        assert!(is_there, "no such constant: {row}");
        named += 1;
    }
    assert!(named > 12, "{named} rows");
}
