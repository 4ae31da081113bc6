//! OCI layouts: made here, and by skopeo and umoci.

use crate::fixture::has;
use crate::listing::{ALL, content, list};
use crate::made::Made;
use crate::tars::context;
use drystone_mkfs::tree::FileTree;
use drystone_sources::oci::Platform;
use drystone_sources::{Source, SourceKind};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A layout in the making.
pub struct Layout {
    pub folder: TempDir,
}

impl Layout {
    pub fn new() -> Layout {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("blobs/sha256")).unwrap();
        let version = r#"{"imageLayoutVersion":"1.0.0"}"#;
        std::fs::write(folder.path().join("oci-layout"), version).unwrap();
        Layout { folder }
    }

    /// Adds a blob and returns its descriptor, without the closing brace.
    fn blob(&self, media_type: &str, bytes: &[u8]) -> String {
        let digest = digest(bytes);
        let path = format!("blobs/{}", digest.replace(':', "/"));
        std::fs::write(self.folder.path().join(path), bytes).unwrap();
        let size = bytes.len();
        format!(r#"{{"mediaType":"{media_type}","digest":"{digest}","size":{size}"#)
    }

    pub fn image(&self, architecture: &str, layers: &[(&str, Vec<u8>)]) -> String {
        let config = format!(
            r#"{{"architecture":"{architecture}","os":"linux","rootfs":{{"type":"layers","diff_ids":[]}}}}"#
        );
        let config = self.blob("application/vnd.oci.image.config.v1+json", config.as_bytes());
        let layers: Vec<String> = layers
            .iter()
            .map(|(suffix, bytes)| {
                let media_type = format!("application/vnd.oci.image.layer.v1.tar{suffix}");
                self.blob(&media_type, bytes) + "}"
            })
            .collect();
        let manifest =
            format!(r#"{{"schemaVersion":2,"config":{config}}},"layers":[{}]}}"#, layers.join(","));
        self.blob("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes())
    }

    pub fn index(&self, images: &[String]) -> String {
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, images.join(","));
        std::fs::write(self.folder.path().join("index.json"), &index).unwrap();
        index
    }

    pub fn read(
        &self,
        platform: Option<&str>,
        reference: Option<&str>,
    ) -> Result<FileTree, String> {
        read(self.folder.path(), platform, reference)
    }
}

pub fn read(
    path: &Path,
    platform: Option<&str>,
    reference: Option<&str>,
) -> Result<FileTree, String> {
    let mut tree = FileTree::new();
    let mut context = context(&std::env::temp_dir());
    context.choice.platform = platform.and_then(Platform::parse);
    context.choice.reference = reference.map(str::to_owned);
    let added = Source::parse(path.as_os_str()).add(&mut tree, &mut context);
    added.map(|()| tree).map_err(|error| error.to_string())
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Each index names the next one a thousand times.
#[test]
fn what_is_named_often_is_read_once() {
    let layout = Layout::new();
    let layer = Made::default().file("alone", "").end();
    let mut inner = layout.image("amd64", &[("", layer)]) + "}";
    for _ in 0..6 {
        let many = vec![inner; 1000].join(",");
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{many}]}}"#);
        inner = layout.blob(INDEX, index.as_bytes()) + "}";
    }
    layout.index(&[inner]);
    assert!(layout.read(None, None).unwrap().lookup(b"alone").is_some());
}

/// The same by other names.
#[test]
fn images_without_end_are_refused() {
    let layout = Layout::new();
    let mut inner = layout.image("amd64", &[("", Made::default().file("alone", "").end())]);
    let name = "org.opencontainers.image.ref.name";
    for _ in 0..5 {
        let named = |number| format!(r#"{inner},"annotations":{{"{name}":"{number}"}}}}"#);
        let many = (0..1000).map(named).collect::<Vec<_>>().join(",");
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{many}]}}"#);
        inner = layout.blob(INDEX, index.as_bytes());
    }
    layout.index(&[inner + "}"]);
    let error = layout.read(None, Some("7")).expect_err("too many");
    assert!(error.contains("more than 4096 images"), "{error}");
}

/// A layer that isn't compressed is read where it is.
#[test]
fn a_layer_that_changes_is_noticed() {
    let layout = Layout::new();
    let layer = Made::default().file("file", &"x".repeat(3000)).end();
    let image = layout.image("amd64", &[("", layer.clone())]);
    layout.index(&[image + "}"]);
    let tree = layout.read(None, None).unwrap();
    let path = layout.folder.path().join(format!("blobs/{}", digest(&layer).replace(':', "/")));
    crate::bad_input::change_unnoticed(&path);
    let error = crate::bad_input::read_error(&tree, "file");
    assert!(error.contains("changed while it was read"), "{error}");
}

#[test]
fn platforms_and_names_choose() {
    let layout = Layout::new();
    let image = |architecture: &str| {
        let layer = Made::default().file(architecture, "").end();
        let platform = format!(r#","platform":{{"os":"linux","architecture":"{architecture}"}}}}"#);
        layout.image(architecture, &[("", layer)]) + &platform
    };
    let nested =
        format!(r#"{{"schemaVersion":2,"manifests":[{},{}]}}"#, image("arm64"), image("s390x"));
    let nested = layout.blob("application/vnd.oci.image.index.v1+json", nested.as_bytes());
    let named = |text: String, name: &str| {
        let text = text.strip_suffix('}').unwrap_or(&text).to_owned();
        text + &format!(r#","annotations":{{"org.opencontainers.image.ref.name":"{name}"}}}}"#)
    };
    let alone = layout.image("riscv64", &[("", Made::default().file("alone", "").end())]);
    layout.index(&[named(nested, "v1"), named(alone, "v2")]);
    let has = |tree: FileTree, path: &str| tree.lookup(path.as_bytes()).is_some();
    assert!(has(layout.read(Some("arm64"), None).unwrap(), "arm64"));
    assert!(has(layout.read(Some("linux/s390x"), Some("v1")).unwrap(), "s390x"));
    assert!(has(layout.read(None, Some("v2")).unwrap(), "alone"));
    assert!(has(layout.read(Some("riscv64"), None).unwrap(), "alone"));
    for (platform, reference, expected) in [
        (Some("mips"), None, "no image for linux/mips; there is v1 for linux/arm64"),
        (None, Some("v3"), "no image named v3; there is"),
        (Some("arm64"), Some("v2"), "no image named v2 for linux/arm64"),
    ] {
        let error = layout.read(platform, reference).expect_err("none");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn damaged_layouts() {
    let layout = Layout::new();
    let layer = Made::default().file("a", "text").end();
    let image = layout.image("amd64", &[("", layer.clone())]);
    layout.index(&[image + "}"]);
    let path = format!("blobs/{}", digest(&layer).replace(':', "/"));
    let place = layout.folder.path().join(&path);
    let mut damaged = layer.clone();
    damaged[513] ^= 1;
    std::fs::write(&place, &damaged).unwrap();
    let error = layout.read(None, None).expect_err("damaged");
    assert!(error.contains(&format!("{path} is damaged: the sum of its bytes is ")), "{error}");
    std::fs::write(&place, &layer[..512]).unwrap();
    let error = layout.read(None, None).expect_err("shorter");
    assert!(error.contains("has 512 bytes, its descriptor says "), "{error}");
    std::fs::remove_file(&place).unwrap();
    let error = layout.read(None, None).expect_err("missing");
    assert!(error.ends_with(&format!("{path} is missing")), "{error}");
    std::fs::write(layout.folder.path().join("index.json"), "{").unwrap();
    let error = layout.read(None, None).expect_err("no JSON");
    assert!(error.contains("index.json isn't a valid index: "), "{error}");
}

#[test]
fn what_docker_saves() {
    let folder = tempfile::tempdir().unwrap();
    let id = "0123456789abcdef".repeat(4);
    let base = Made::default().file("a", "1").file("b", "1").end();
    let over = Made::default().file(".wh.a", "").file("b", "2").end();
    let saved = |digests: &[String]| {
        let config = format!(r#"{{"rootfs":{{"type":"layers","diff_ids":{digests:?}}}}}"#);
        let name = digest(config.as_bytes()).replace("sha256:", "") + ".json";
        let manifest = format!(
            r#"[{{"Config":"{name}","RepoTags":["x:latest"],"Layers":["{id}/layer.tar","{id}/2.tar"]}}]"#
        );
        (name, config, manifest)
    };
    let archive_of = |(name, config, manifest): (String, String, String)| {
        Made::default()
            .directory(&id)
            .entry(&format!("{id}/base.tar"), b'0', "", &base)
            .entry(&format!("{id}/layer.tar"), b'2', "base.tar", b"")
            .entry(&format!("{id}/2.tar"), b'0', "", &over)
            .file(&name, &config)
            .file("manifest.json", &manifest)
            .end()
    };
    let digests = [digest(&base), digest(&over)];
    let archive = archive_of(saved(&digests));
    let path = folder.path().join("saved.tar");
    std::fs::write(&path, archive).unwrap();
    let tree = read(&path, None, None).unwrap();
    assert_eq!(tree.lookup(b"a"), None);
    assert_eq!(content(&tree, tree.lookup(b"b").unwrap()), b"2");
    // Layers that don't match the configuration are refused, and so is another configuration.
    let (name, config, manifest) = saved(&digests);
    let wrong = [
        (saved(&[digest(&base), digest(b"other")]), "2.tar is damaged: the sum of its bytes is "),
        (saved(&digests[..1]), "the image has 2 layers, its configuration says 1"),
        ((name, config + " ", manifest), ".json is damaged: the sum of its bytes is "),
    ];
    for (saved, expected) in wrong {
        std::fs::write(&path, archive_of(saved)).unwrap();
        let error = read(&path, None, None).expect_err("not what it says");
        assert!(error.contains(expected), "{error}");
    }
    // A file of the same name doesn't make an archive a layout.
    let other = Made::default().file("manifest.json", r#"{"name":"an extension"}"#).end();
    std::fs::write(&path, other).unwrap();
    assert!(read(&path, None, None).unwrap().lookup(b"manifest.json").is_some());
}

/// Paths and links of a layout lead nowhere else, as those in an archive don't.
#[test]
fn layouts_in_directories_end_there() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved");
    std::fs::create_dir_all(saved.join("blobs")).unwrap();
    let layer = Made::default().file("a", "1").end();
    for place in [&saved.join("blobs/layer.tar"), &folder.path().join("outside.tar")] {
        std::fs::write(place, &layer).unwrap();
    }
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, saved.join(name)).unwrap();
    };
    link("blobs/../blobs/layer.tar", "inner.tar");
    link("../outside.tar", "outer.tar");
    link("..", "up");
    let absolute = folder.path().join("outside.tar");
    let config = format!(r#"{{"rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#, digest(&layer));
    std::fs::write(saved.join("config.json"), config).unwrap();
    let read_layer = |layer: &str| {
        let manifest = format!(r#"[{{"Config":"config.json","Layers":["{layer}"]}}]"#);
        std::fs::write(saved.join("manifest.json"), manifest).unwrap();
        let mut source = Source::parse(saved.as_os_str());
        source.kind = SourceKind::Oci;
        let mut tree = FileTree::new();
        let added = source.add(&mut tree, &mut context(folder.path()));
        added.map(|()| tree).map_err(|error| error.to_string())
    };
    for layer in ["blobs/layer.tar", "inner.tar"] {
        assert!(read_layer(layer).unwrap().lookup(b"a").is_some(), "{layer}");
    }
    for layer in ["../outside.tar", "outer.tar", "up/outside.tar", absolute.to_str().unwrap()] {
        let error = read_layer(layer).unwrap_err();
        assert!(error.ends_with(&format!("{layer} leads out of the layout")), "{error}");
    }
}

#[test]
fn what_umoci_and_skopeo_make() {
    if !has("umoci") || !has("tar") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(folder.path()).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    };
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    std::fs::write(tree.join("sub/file"), "text").unwrap();
    std::fs::hard_link(tree.join("sub/file"), tree.join("again")).unwrap();
    run("umoci", &["init", "--layout", "layout"]);
    run("umoci", &["new", "--image", "layout:tag"]);
    let insert = |arguments: &[&str]| {
        let start = ["insert", "--rootless", "--image", "layout:tag"];
        run("umoci", &[&start[..], arguments].concat());
    };
    insert(&["tree", "/a"]);
    insert(&["tree", "/b"]);
    insert(&["--whiteout", "/a/again"]);
    insert(&["--opaque", "tree/sub", "/b"]);
    let tree = read(&folder.path().join("layout"), None, Some("tag")).unwrap();
    let expected = list(&tree, ALL);
    let paths: Vec<&str> = expected.keys().map(String::as_str).collect();
    assert_eq!(paths, ["", "/a", "/a/sub", "/a/sub/file", "/b", "/b/file"]);
    if has("skopeo") {
        let names = ["oci-archive:oci.tar:tag", "docker-archive:docker.tar:name:tag"];
        for (to, archive) in names.into_iter().zip(["oci.tar", "docker.tar"]) {
            run("skopeo", &["copy", "--insecure-policy", "oci:layout:tag", to]);
            let tree = read(&folder.path().join(archive), None, None).unwrap();
            assert_eq!(list(&tree, ALL), expected, "{archive}");
        }
    }
}
