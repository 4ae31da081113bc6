//! A Ceph cluster on this machine: starts and stops it, and runs the tests that need it.

mod cluster;

use crate::process;
use anyhow::bail;
use cluster::{Cluster, POOL};
use std::path::PathBuf;

/// What is done with the cluster.
#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
    /// The folder of the cluster, which 'start' makes; 'drystone-ceph' in the folder for temporary files if none is
    /// named.
    #[arg(long, global = true)]
    folder: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Make and start a cluster.
    Start {
        /// Bytes that it can hold; space is taken as they are written.
        #[arg(long, default_value_t = 16 << 30)]
        bytes: u64,
    },
    /// Stop the cluster and remove it with all that is in it.
    Stop,
    /// What Ceph says of the cluster.
    Status,
    /// Run the tests of RBD volumes on a cluster of their own.
    Test {
        /// Arguments for the test program.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

pub fn run(options: &Options) -> anyhow::Result<()> {
    let folder = options.folder.clone();
    let folder = folder.unwrap_or_else(|| std::env::temp_dir().join("drystone-ceph"));
    // The daemons work in another folder.
    let folder = std::path::absolute(folder)?;
    let cluster = Cluster::at(&folder);
    match &options.action {
        Action::Start { bytes } => {
            match cluster.exists() {
                true => cluster.start()?,
                false => cluster.create(*bytes)?,
            }
            let configuration = cluster.configuration();
            let configuration = configuration.display();
            println!("export CEPH_CONF={configuration}");
            println!("# then: rbd create {POOL}/disk --size 1G; drystone mkfs rbd:{POOL}/disk");
            Ok(())
        }
        Action::Stop if cluster.exists() => {
            cluster.stop()?;
            cluster.remove()
        }
        Action::Status if cluster.exists() => {
            println!("export CEPH_CONF={}", cluster.configuration().display());
            if !cluster.is_running() {
                bail!("a daemon of the cluster doesn't run; './dev ceph start' starts it");
            }
            process::run(cluster.command("ceph").arg("status"))
        }
        Action::Stop | Action::Status => {
            bail!("'./dev ceph start' has made no cluster in {}", folder.display())
        }
        Action::Test { arguments } => test(&cluster, arguments),
    }
}

/// Runs the tests, on the cluster that is there or on one that goes away with them.
fn test(cluster: &Cluster, arguments: &[String]) -> anyhow::Result<()> {
    let is_ours = !cluster.exists();
    if is_ours {
        cluster.create(4 << 30)?;
    }
    let mut tests = process::cargo(["test", "--quiet", "--package", "drystone-volumes"]);
    tests.args(["--test", "rbd", "--", "--ignored", "--test-threads=1"]).args(arguments);
    tests.env("CEPH_CONF", cluster.configuration());
    let tested = process::run(&mut tests);
    if is_ours {
        cluster.stop()?;
        cluster.remove()?;
    }
    tested
}
