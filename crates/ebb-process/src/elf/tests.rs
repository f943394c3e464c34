use super::*;

fn object(interpreter: Option<&str>, needed: &[&str], soname: Option<&str>) -> Elf {
    Elf {
        machine: Machine { machine: elf::EM_X86_64.0, bits: 64, little_endian: true },
        loadable: true,
        interpreter: interpreter.map(PathBuf::from),
        needed: needed.iter().map(|name| (*name).to_owned()).collect(),
        soname: soname.map(str::to_owned),
        defines: Defines::default(),
        static_tls_bytes: None,
        segment_alignment: 0x1000,
    }
}

#[test]
fn a_program_belongs_to_the_libc_of_its_loader() {
    let glibc = object(Some("/lib64/ld-linux-x86-64.so.2"), &["libc.so.6"], None);
    assert_eq!(libc_of(&glibc), Libc::Glibc);
    let musl = object(Some("/lib/ld-musl-x86_64.so.1"), &["libc.so"], None);
    assert_eq!(libc_of(&musl), Libc::Musl);
    let renamed = object(Some("/opt/bundle/start"), &["libm.so.6", "libc.so.6"], None);
    assert_eq!(libc_of(&renamed), Libc::Glibc);
    let bionic = object(Some("/system/bin/linker64"), &["libc.so"], None);
    assert_eq!(libc_of(&bionic), Libc::Other("linker64".to_owned()));
}

#[test]
fn a_library_belongs_to_the_libc_that_it_needs() {
    let needs = |needed: &[&str]| libc_of(&object(None, needed, Some("libx.so.1")));
    assert_eq!(needs(&["libm.so.6", "libc.so.6"]), Libc::Glibc);
    assert_eq!(needs(&["libc.musl-x86_64.so.1"]), Libc::Musl);
    assert_eq!(needs(&["libstdc++.so.6", "libc.so"]), Libc::Musl);
    assert_eq!(needs(&[]), Libc::Any);
    assert!(matches!(needs(&["libstdc++.so.6"]), Libc::Other(_)));
}

#[test]
fn a_program_without_a_loader_is_static_unless_it_is_the_loader() {
    assert!(object(None, &[], None).is_static());
    let mut loader = object(None, &[], None);
    loader.defines.loaded_objects = true;
    assert!(!loader.is_static());
    assert!(!object(Some("/lib64/ld-linux-x86-64.so.2"), &[], None).is_static());
}

#[test]
fn this_test_program_is_read_as_what_it_is() {
    let own = Elf::read(&std::env::current_exe().unwrap()).unwrap();
    assert!(own.loadable);
    assert!(!own.is_static());
    assert!(!own.needed.is_empty());
    assert!(!own.defines.malloc, "it refers to malloc, it does not define it");
}

#[test]
fn text_is_not_an_elf_file() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    assert!(matches!(Elf::read(&source), Err(ElfError::Format(_))));
}
