//! The workloads of `drystone bench` on virtual cores (`./dev simulate`).
#![forbid(unsafe_code)]

#[cfg(not(sim))]
fn main() {
    eprintln!("simulate: built without `--cfg sim`; use ./dev simulate");
    std::process::exit(2);
}

#[cfg(sim)]
fn main() -> anyhow::Result<()> {
    simulate::main()
}

#[cfg(sim)]
mod simulate {
    use anyhow::Context;
    use clap::Parser;
    use drystone_bench::policy::PolicyChoice;
    use drystone_bench::target::{EngineTarget, Job, Outcome, Place, Target, Verify};
    use drystone_bench::workload::{self, Sizes};
    use drystone_sync::atomic::AtomicBool;
    use drystone_sync::sim::{self, Machine, Settings};
    use std::time::Instant;

    /// Runs workloads of `drystone bench` on virtual cores.
    #[derive(Parser)]
    struct Arguments {
        /// Workloads, such as `orphan`.
        #[arg(required = true)]
        workloads: Vec<String>,
        /// Numbers of workers, each on a core of its own.
        #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128")]
        cores: Vec<usize>,
        /// Policies to compare.
        #[arg(long = "policy", default_value = "scalable")]
        policies: Vec<String>,
        /// Operations of each worker.
        #[arg(long, default_value_t = 200)]
        operations: u64,
    }

    pub fn main() -> anyhow::Result<()> {
        let arguments = Arguments::parse();
        for name in &arguments.workloads {
            for policy in &arguments.policies {
                let mut one = None;
                for &cores in &arguments.cores {
                    let start = Instant::now();
                    let (outcome, report) = run(name, policy, cores, arguments.operations)?;
                    let rate = outcome.operations as f64 / outcome.seconds;
                    let one = *one.get_or_insert(rate);
                    println!(
                        "{name:<12} {policy:<28} {cores:>4} {rate:>14.0}/s {:>7.2} {:>9} events {:>6.2} s",
                        rate / one,
                        report.events,
                        start.elapsed().as_secs_f64()
                    );
                }
            }
        }
        Ok(())
    }

    fn run(
        name: &str,
        policy: &str,
        workers: usize,
        operations: u64,
    ) -> anyhow::Result<(Outcome, sim::Report)> {
        let policy = PolicyChoice::parse(policy)?;
        let workload = workload::find(name).with_context(|| format!("no workload '{name}'"))?;
        let machine = Machine::two_sockets_128();
        // The engine's own threads have cores beside those of the workers.
        let settings = Settings { machine, cores: workers + 4 };
        let (outcome, report) = sim::run(&settings, move || {
            let sizes = Sizes { operations: Some(operations), ..Sizes::default() };
            let stop = AtomicBool::new(false);
            let job = Job {
                workload: &*workload,
                sizes: &sizes,
                workers: workers as u64,
                verify: Verify::Nothing,
                stop: &stop,
            };
            EngineTarget::new(Place::Memory, true).run(job, Some(&policy))
        });
        Ok((outcome?, report))
    }
}
