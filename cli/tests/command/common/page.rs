//! Reads a page that a command wrote.

use roxmltree::{Document, Node, ParsingOptions};

pub(crate) fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).expect("a well-formed page")
}

pub(crate) fn with_id<'a>(page: &'a Document, id: &str) -> Node<'a, 'a> {
    let mut nodes = page.descendants().filter(|node| node.attribute("id") == Some(id));
    let node = nodes.next().unwrap_or_else(|| panic!("nothing has the id {id}"));
    assert!(nodes.next().is_none(), "two have the id {id}");
    node
}

/// The page is well-formed, and loads nothing from outside.
#[track_caller]
pub(crate) fn assert_stands_alone(text: &str) {
    let page = parsed(text);
    for node in page.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        let loads = ["link", "img", "image", "iframe", "object", "embed", "use", "base"];
        assert!(!loads.contains(&name), "{name}");
        for attribute in node.attributes() {
            match attribute.name() {
                "href" => match attribute.value().strip_prefix('#') {
                    Some(place) => {
                        with_id(&page, place);
                    }
                    None => {
                        assert!(!attribute.value().contains(['/', ':']), "a file beside the page");
                    }
                },
                name => assert!(!name.contains("src") && !name.starts_with("on"), "{name}"),
            }
        }
    }
    for loading in ["@import", "url("] {
        assert!(!text.contains(loading), "{loading}");
    }
    let addresses = text.matches("http").count() - text.matches("<meta http-equiv").count();
    assert_eq!(addresses, text.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
}
