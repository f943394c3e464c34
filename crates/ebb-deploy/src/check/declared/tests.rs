use super::*;

/// A service on a few lines: name and variables, what starts, what its reader has to say.
fn shown(service: &Service) -> String {
    let value = |it: &Variable| it.value.clone().unwrap_or("?".to_owned());
    let env = service.env.iter().map(|it| format!(" {}={}@{}", it.name, value(it), it.line));
    let mut text = format!("{}:{}:{}\n", service.name, service.line, env.collect::<String>());
    if let Some(start) = &service.start {
        text += &format!("  starts {}\n", start.words.join("|"));
    }
    if let Some(image) = &service.image {
        text += &format!("  in {image}\n");
    }
    for mount in &service.mounts {
        text += &format!("  mounts {} at {}\n", mount.from.as_deref().unwrap_or("?"), mount.to);
    }
    for remark in &service.remarks {
        let weight = if remark.is_note { "note" } else { "error" };
        text += &format!("  {weight} {}:{}\n", remark.id.name(), remark.line);
    }
    text
}

/// Each case of `tests.cases`: `== NAME: FILE ==`, a text, and the services that it declares.
#[test]
fn each_file_declares_the_services_in_its_case() {
    for case in include_str!("tests.cases").split("\n== ") {
        let (heading, text) = case.split_once(" ==\n").unwrap();
        let (text, expected) = text.split_once("-- declares --\n").unwrap();
        let path = Path::new(heading.rsplit(' ').next().unwrap());
        let said = match services(kind(path, text).unwrap(), path, text) {
            Ok(services) => services.iter().map(shown).collect(),
            Err(why) => format!("refused: {why}\n"),
        };
        assert_eq!(said.trim_end(), expected.trim_end(), "{heading}");
    }
}
