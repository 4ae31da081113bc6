//! The programs, as shell scripts that fail if anything isn't as it should be.
//!
//! `$M` is an empty directory in the mount, `$T` one elsewhere. `$R` is a number that differs from kill to
//! kill, and isn't set where nothing is killed.

use std::ops::Range;

/// A program and how it is used.
pub struct Program {
    pub name: &'static str,
    /// What has to be installed.
    pub needs: &'static [&'static str],
    /// What has to be there before; no kill comes while it is made.
    pub prepare: &'static str,
    pub script: &'static str,
    /// When a kill comes, in milliseconds after the start.
    pub kill_after: Range<u64>,
    /// After a kill in the middle and the recovery: what has to hold then.
    pub after_kill: &'static str,
}

const fn program(
    name: &'static str,
    needs: &'static [&'static str],
    script: &'static str,
) -> Program {
    Program { name, needs, prepare: ":", script, kill_after: 10..900, after_kill: ":" }
}

/// What `fio` writes and reads back.
macro_rules! fio {
    ($arguments:literal) => {
        concat!(
            "cd $M; fio --name=job --directory=$M --verify=crc32c --do_verify=1 --verify_fatal=1 ",
            "--group_reporting --minimal ",
            $arguments,
            " > $T/fio.log"
        )
    };
}

pub const PROGRAMS: &[Program] = &[
    Program {
        name: "synced-files",
        needs: &["dd"],
        prepare: ":",
        kill_after: 30..1200,
        // Each name in the log was synced, with its directory, before it was logged.
        script: r#"
            for number in $(seq 1 300); do
                head -c $((number * 777 % 60000 + 1)) /dev/urandom > $T/source
                dd if=$T/source of=$M/file$number bs=7000 conv=fsync status=none
                sync $M
                echo "$(sha256sum < $T/source | cut -d' ' -f1)  $M/file$number" >> $T/log
                echo unsynced > $M/other$number
                if [ $((number % 3)) = 0 ]; then mv $M/other$number $M/other; fi
            done
            sha256sum --quiet -c $T/log"#,
        after_kill: "test ! -s $T/log || sha256sum --quiet -c $T/log",
    },
    program("fio-sequential", &["fio"], fio!("--rw=write --bs=128k --size=100m --numjobs=2")),
    program("fio-random", &["fio"], fio!("--rw=randwrite --bs=4k --size=24m --numjobs=4")),
    program("fio-mmap", &["fio"], fio!("--rw=randwrite --bs=4k --size=24m --ioengine=mmap")),
    program(
        "fio-direct",
        &["fio"],
        fio!("--rw=randwrite --bs=4k --size=16m --direct=1 --numjobs=2"),
    ),
    program("fio-mixed", &["fio"], fio!("--rw=randrw --bsrange=1k-64k --size=32m --fsync=50")),
    program(
        "fio-appends",
        &["fio"],
        fio!("--rw=write --bs=3k --size=8m --fallocate=none --numjobs=4"),
    ),
    program(
        "stress-ng",
        &["stress-ng"],
        r#"
        stressors=(access chdir chmod chown copy-file dentry dir dirdeep dirmany fallocate fcntl \
            file-ioctl filename flock fpunch fstat getdent hdd inode-flags io iomix lease link locka \
            lockf lockofd mknod mmap open readahead rename seek sendfile symlink sync-file touch \
            utime xattr)
        # Each kill begins with another.
        first=$((${R:-0} % ${#stressors[@]}))
        for stressor in "${stressors[@]:$first}" "${stressors[@]:0:$first}"; do
            stress-ng --quiet --temp-path $M --$stressor 2 --$stressor-ops 200 --timeout 5 --verify \
                > $T/stress.log 2>&1 || { echo "$stressor"; cat $T/stress.log; exit 1; }
        done"#,
    ),
    Program {
        name: "git",
        needs: &["git"],
        prepare: r#"
            mkdir -p $T/source; cd $T/source
            git init -q . && git config user.email a@b && git config user.name a
            for round in 1 2 3 4 5; do
                for number in $(seq 1 200); do echo "$round $number" > file$number; done
                git add . && git commit -qm "round $round"
            done"#,
        kill_after: 20..2500,
        // Git syncs files, but no names: a commit counts when the directory has been synced as well.
        script: r#"
            git clone -q --no-local $T/source $M/clone
            cd $M/clone && git fsck --strict && git config user.email a@b && git config user.name a
            git config core.fsync all
            for number in $(seq 1 20); do
                echo more >> file$number; git commit -qam "more $number"
                sync .git && git rev-parse HEAD >> $T/commits
            done
            git gc -q && git fsck --strict && git status --porcelain | wc -l | grep -qx 0"#,
        after_kill: r#"
            test ! -s $T/commits || {
                cd $M/clone; last=$(tail -1 $T/commits)
                git merge-base --is-ancestor $last HEAD
                git rev-list --objects $last | cut -d' ' -f1 | git cat-file --batch > $T/objects
                ! grep -a ' missing$' $T/objects; }"#,
    },
    program(
        "compile",
        &["cc", "make"],
        r#"
        cd $M
        for number in $(seq 1 60); do
            echo "int function$number(int x) { return x + $number; }" > part$number.c
        done
        echo 'int main(void) { return 0; }' > main.c
        printf 'objects := $(patsubst %%.c,%%.o,$(wildcard *.c))\nprogram: $(objects)\n\tcc -o program $(objects)\n' > Makefile
        make -s -j4 && ./program && touch part1.c && make -s && make -q"#,
    ),
    program(
        "rust",
        &["cargo"],
        r#"
        cd $M; unset CARGO_MANIFEST_DIR CARGO; export CARGO_NET_OFFLINE=true
        cargo new -q --vcs none --lib helper; cargo new -q --vcs none program; cd program
        cargo add -q --offline --path ../helper
        for number in $(seq 1 20); do
            echo "pub fn value() -> u64 { helper::add($number, $number) }" > src/module$number.rs
            echo "mod module$number;"
        done > src/main.rs
        echo "fn main() { println!(\"{}\", 0 $(printf ' + module%s::value()' $(seq 1 20))); }" >> src/main.rs
        cargo build -q && test $(target/debug/program) = 420
        cargo build -v 2>&1 | grep -q 'Fresh program'
        sed -i 's/left + right/left + right + 1/' ../helper/src/lib.rs
        cargo run -q | grep -qx 440 && cargo test -q > $T/tests.log"#,
    ),
    program(
        "tar",
        &["tar"],
        r#"
        tar -C /usr/share -cf $T/source.tar zoneinfo perl5 2> /dev/null || \
            tar -C /usr/share -cf $T/source.tar zoneinfo
        mkdir $M/tree; tar -C $M/tree -xf $T/source.tar && tar -C $M/tree -df $T/source.tar
        tar -C $M/tree -cf $M/again.tar . && tar -C $M/tree -df $M/again.tar"#,
    ),
    program(
        "rsync",
        &["rsync"],
        r#"
        rsync -aHAX /usr/share/zoneinfo /usr/share/doc $M/
        rsync -aHAXn --itemize-changes --checksum /usr/share/zoneinfo /usr/share/doc $M/ > $T/changes
        test ! -s $T/changes || { head $T/changes; exit 1; }"#,
    ),
    Program {
        name: "sqlite",
        needs: &["sqlite3"],
        prepare: ":",
        kill_after: 10..2000,
        // Without "extra" a commit is an unlink that nobody syncs.
        script: r#"
            sqlite3 $M/data.db 'create table t(a integer primary key, b text)'
            for round in $(seq 1 60); do
                sqlite3 $M/data.db "pragma synchronous=extra; begin; with recursive n(i) as (select 1 union all select i+1 from n \
                    where i < 300) insert into t(b) select hex(randomblob(50)) from n; commit"
                echo $round > $T/committed
            done
            sqlite3 $M/data.db 'pragma integrity_check' | grep -qx ok
            sqlite3 $M/data.db 'pragma journal_mode=wal; delete from t where a % 3 = 0; vacuum' > $T/out
            sqlite3 $M/data.db 'select count(*) from t' | grep -qx 12000"#,
        after_kill: r#"
            test ! -s $T/committed || test -e $T/out || {
                sqlite3 $M/data.db 'pragma integrity_check' > $T/checked || true
                grep -qx ok $T/checked || { cat $T/checked; exit 1; }
                found=$(sqlite3 $M/data.db 'select count(*) from t')
                expected=$(($(cat $T/committed) * 300))
                test $found -ge $expected || { echo "$found of $expected rows"; exit 1; }; }"#,
    },
    Program {
        name: "postgres",
        needs: &["pg_ctlcluster"],
        prepare: r#"
            bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1); chown postgres $M; chmod 777 $T; cd $M
            as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
            as $bin/initdb -D $M/data > $T/log
            as $bin/pg_ctl -s -w -D $M/data -o "-c unix_socket_directories=$T -c listen_addresses=" \
                -l $T/server.log start
            as $bin/createdb -h $T bench
            as $bin/pgbench -q -h $T -i bench > $T/bench.log 2>&1
            as $bin/pg_ctl -s -w -D $M/data -m fast stop"#,
        kill_after: 400..3000,
        // The log has a line for each transaction that was committed.
        script: r#"
            bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1); cd $T
            as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
            as $bin/postgres -D $M/data -k $T -c listen_addresses= > $T/server.log 2>&1 &
            until as $bin/pg_isready -q -h $T; do sleep 0.05; done
            as $bin/pgbench -h $T -n -c 4 -T 5 -l --log-prefix=$T/transactions bench > $T/bench.log 2>&1
            as $bin/pg_ctl -s -w -D $M/data -m fast stop"#,
        after_kill: r#"
            bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1); cd $T
            as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
            rm -f $M/data/postmaster.pid $T/.s.PGSQL*
            as $bin/postgres -D $M/data -k $T -c listen_addresses= > $T/server.log 2>&1 &
            until as $bin/pg_isready -q -h $T; do kill -0 $! || { cat $T/server.log; exit 1; }; sleep 0.05; done
            committed=$(find $T -name 'transactions.*' -exec cat {} + | wc -l)
            found=$(as $bin/psql -h $T -Atc 'select count(*) from pgbench_history' bench)
            as $bin/pg_ctl -s -w -D $M/data -m fast stop
            test $found -ge $committed || { echo "$found of $committed transactions"; exit 1; }"#,
    },
    program("dbench", &["dbench"], "cd $M; dbench -D $M -t 5 4 > $T/dbench.log"),
    program(
        "mpi",
        &["mpirun"],
        r#"
        cd $M; export M
        mpirun -np 8 --oversubscribe --allow-run-as-root bash -ec '
            rank=$OMPI_COMM_WORLD_RANK
            for number in $(seq 1 40); do
                head -c 30000 /dev/zero | tr "\0" "$rank" > $M/rank$rank.$number
                dd if=/dev/zero of=$M/shared bs=4096 seek=$((number * 8 + rank)) count=1 \
                    conv=notrunc status=none
            done
            test $(cat $M/rank$rank.* | tr -d "$rank" | wc -c) = 0'
        test $(stat -c %s $M/shared) = $(((40 * 8 + 8) * 4096))"#,
    ),
];
