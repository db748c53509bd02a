//! Inputs, outputs and scratch space.

use model::CreateMode::{File, Fresh};

use crate::host::{Job, run, run_in, tier};

#[test]
fn a_file_is_copied_from_input_to_output() {
    let job = Job::new(&["cp", "data/a.csv", "out/b.csv"])
        .input("data/a.csv", b"one,two\n")
        .output("out/b.csv", File);
    let done = run(&job);
    assert_eq!(done.output.as_deref(), Some(&b"one,two\n"[..]), "{done:?}");
    assert_eq!(done.code(), 0);
}

#[test]
fn inputs_are_readable_and_nothing_more() {
    let job = Job::sh(
        "cat a/x b; echo; ls -A . a; \
         for f in a/x b; do \
           (echo y > $f) 2>/dev/null && echo wrote; (echo y >> $f) 2>/dev/null && echo appended; \
           chmod u+w $f 2>/dev/null && echo chmod; rm -f $f 2>/dev/null && echo rm; \
           mv $f /tmp/z 2>/dev/null && echo mv; ln $f /tmp/l 2>/dev/null && echo ln; \
         done; touch new 2>/dev/null && echo created; mkdir a/d 2>/dev/null && echo made; \
         stat -c '%a' a/x; true",
    )
    .input("a/x", b"first")
    .input("b", b"second");
    assert_eq!(run(&job).ok(), "firstsecond\n.:\na\nb\n\na:\nx\n444\n");
}

#[test]
fn large_and_empty_inputs_arrive_whole() {
    let large: Vec<u8> = (0..3_000_001u32).map(|n| (n % 251) as u8).collect();
    let job = Job::new(&["sha256sum", "large", "empty"])
        .input("large", &large)
        .input("empty", b"");
    let text = run(&job).ok();
    assert!(text.contains(&model::Digest::of(&large).to_hex()), "{text}");
    assert!(text.contains(&model::Digest::of(b"").to_hex()), "{text}");
}

#[test]
fn no_path_of_the_host_shows_where_files_are() {
    let job = Job::sh("cat /proc/self/mountinfo /proc/mounts; ls -la /proc/self/fd/ /run /channel")
        .input("data/a", b"x")
        .input("out/b", b"x")
        .output("out/c", Fresh);
    let done = run(&job);
    for part in [env!("CARGO_MANIFEST_DIR"), "symbi", "tempfile", "/tmp/."] {
        assert!(!done.out().contains(part), "{}", done.out());
    }
}

#[test]
fn an_output_that_nobody_wrote_is_an_empty_file() {
    let done = run(&Job::new(&["true"]).output("o", File));
    assert_eq!(done.output.as_deref(), Some(&b""[..]));
}

#[test]
fn programs_write_the_output_in_place() {
    let mut tier = tier();
    for script in [
        "cp in o",
        "cat in > o",
        "tee o < in > /dev/null",
        "dd if=in of=o status=none",
        "install -m 600 in o 2>/dev/null || cp in o",
        "python3 -c 'open(\"o\",\"w\").write(open(\"in\").read())'",
        "echo longer text > o; cp in o",
        "cp in o; chmod 000 o",
    ] {
        let job = Job::sh(script).input("in", b"text\n").output("o", File);
        let done = run_in(&mut tier, &job);
        assert_eq!(
            done.output.as_deref(),
            Some(&b"text\n"[..]),
            "{script}: {done:?}"
        );
    }
}

#[test]
fn an_output_cannot_be_replaced_in_file_mode() {
    let mut tier = tier();
    for script in [
        "sed -i s/a/b/ o",
        "mv /tmp/t o",
        "rm o",
        "ln -f o o2",
        "ln -sf /etc/passwd o",
        "mv o o2",
    ] {
        let script = format!("echo old > o; echo new > /tmp/t; {script}");
        let done = run_in(&mut tier, &Job::sh(&script).output("o", File));
        assert_ne!(done.code(), 0, "{script}");
        assert_eq!(done.output.as_deref(), Some(&b"old\n"[..]), "{script}");
    }
}

#[test]
fn programs_that_write_aside_and_rename_need_a_fresh_output() {
    let mut tier = tier();
    for script in [
        "cp in d/o",
        "cp in d/o; sed -i s/x/x/ d/o",
        "cp in d/t; mv d/t d/o",
        "cp in d/t; ln d/t d/o; rm d/t",
        "cp in d/o; chmod 000 d/o; chmod 000 d",
        "sort -o d/o in",
        "cd d; python3 -c 'import os; open(\"t\",\"w\").write(\"text\\n\"); os.replace(\"t\",\"o\")'",
        "mkdir d/sub; cp in d/sub/t; mv d/sub/t d/o; echo left > d/other",
    ] {
        let job = Job::sh(script).input("in", b"text\n").output("d/o", Fresh);
        let done = run_in(&mut tier, &job);
        assert_eq!(
            done.output.as_deref(),
            Some(&b"text\n"[..]),
            "{script}: {done:?}"
        );
    }
}

#[test]
fn a_fresh_output_is_exactly_one_regular_file_or_a_reason() {
    let mut tier = tier();
    for (script, reason) in [
        ("test ! -e d/o", "no file"),
        ("echo x > d/t; ln -s t d/o", "symbolic link"),
        ("ln -s /etc/passwd d/o", "symbolic link"),
        ("mkdir d/o", "a folder"),
        ("mkfifo d/o", "not a regular"),
        ("echo x > d/o; ln d/o d/second", "2 links"),
        (
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"d/o\")'",
            "not a regular",
        ),
    ] {
        let done = run_in(&mut tier, &Job::sh(script).output("d/o", Fresh));
        assert_eq!(done.code(), 0, "{script}: {}", done.err());
        assert!(
            done.unusable().contains(reason),
            "{script}: {}",
            done.unusable()
        );
    }
}

#[test]
fn inputs_beside_a_fresh_output_are_there_and_read_only() {
    let mut tier = tier();
    for output in ["d/o", "o"] {
        let script = format!(
            "cat d/in d/e/in > {output}; \
             for f in d/in d/e/in; do (echo y > $f) 2>/dev/null && echo wrote; \
             rm -f $f 2>/dev/null && echo rm; mv $f /tmp/z 2>/dev/null && echo mv; \
             ln -f $f d/l 2>/dev/null && echo ln; done; cat d/in d/e/in"
        );
        let job = Job::sh(&script)
            .input("d/in", b"one")
            .input("d/e/in", b"two")
            .output(output, Fresh);
        let done = run_in(&mut tier, &job);
        assert_eq!(done.output.as_deref(), Some(&b"onetwo"[..]), "{done:?}");
        assert_eq!(done.ok(), "onetwo");
    }
}

#[test]
fn a_fresh_output_cannot_be_an_input() {
    let job = Job::sh("cp -f d/in d/o; mv -f d/in d/o; true")
        .input("d/in", b"x")
        .output("d/o", Fresh);
    let done = run(&job);
    assert_eq!(done.output.as_deref(), Some(&b"x"[..]), "{done:?}");
}

#[test]
fn only_scratch_and_the_output_are_writable() {
    let script = "
import os
writable = []
for folder, folders, files in os.walk('/'):
    if folder == '/proc': folders.clear(); continue
    if folder.startswith('/usr/') and folder.count('/') > 3: folders.clear()
    probe = os.path.join(folder, 'probe')
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_WRONLY)); os.unlink(probe); writable.append(folder)
    except OSError: pass
    for name in files:
        path = os.path.join(folder, name)
        if folder.startswith('/usr'): continue
        try: os.close(os.open(path, os.O_WRONLY)); writable.append(path)
        except OSError: pass
print(sorted(writable))
";
    let mut tier = tier();
    let devices =
        "'/dev/full', '/dev/null', '/dev/shm', '/dev/stderr', '/dev/stdin', '/dev/stdout', ";
    let tail = format!("{devices}'/dev/zero', '/tmp'");
    let job = Job::python(script).input("in", b"x").output("d/o", File);
    let text = run_in(&mut tier, &job).ok();
    assert_eq!(text.trim(), format!("[{tail}, '/workspace/d/o']"));
    let job = Job::python(script).input("in", b"x").output("d/o", Fresh);
    let text = run_in(&mut tier, &job).ok();
    assert_eq!(text.trim(), format!("[{tail}, '/workspace/d']"));
}

#[test]
fn nothing_in_scratch_can_be_executed_by_its_path() {
    let done = run(&Job::sh(
        "for d in /tmp /dev/shm; do cp /bin/true $d/t; chmod 755 $d/t; $d/t 2>/dev/null && echo ran; done; true",
    ));
    assert_eq!(done.ok(), "");
}

#[test]
fn the_system_works_for_ordinary_programs() {
    let script = "
set -e
awk 'BEGIN{print 1}' ; perl -e 'print 2, qq(\\n)'; tar cf - /etc/hosts 2>/dev/null | tar tf -
sort /etc/passwd | head -1; date +%Z >/dev/null; id -un; getent hosts localhost >/dev/null
python3 -c 'import ssl, json, sqlite3, multiprocessing; print(3)'
python3 -c 'import subprocess, threading; t=threading.Thread(target=lambda: print(4)); t.start(); t.join(); print(subprocess.run([\"echo\",\"5\"], capture_output=True, text=True).stdout, end=\"\")'
echo $HOME; pwd; ls /usr/local /usr/src | head -1; test ! -e /sys; test ! -e /home; nproc >/dev/null
";
    let text = run(&Job::sh(script)).ok();
    assert_eq!(
        text,
        "1\n2\netc/hosts\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\nnobody\n3\n4\n5\n/tmp\n/workspace\n/usr/local:\n"
    );
}

#[test]
fn a_parser_reads_its_whole_input_from_the_start_and_cannot_change_it() {
    let text: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let job = Job::sh(
        "head -c 3 >/dev/null; sha256sum < /dev/stdin; \
         (echo x > /dev/stdin) 2>/dev/null && echo wrote; ls -A; true",
    );
    let whole = Job::new(&["sha256sum"]).reading(&text);
    let expected = model::Digest::of(&text).to_hex();
    assert_eq!(run(&whole).ok(), format!("{expected}  -\n"));
    assert!(!run(&job.reading(&text)).ok().contains("wrote"));
    assert_eq!(run(&Job::new(&["cat"]).reading(b"")).ok(), "");
    assert_eq!(run(&Job::new(&["cat"])).ok(), "");
}
