//! `symbi-init`: see the library.

#![forbid(unsafe_code)]

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((first, probe)) if first == "probe" => sandbox_init::probe::run(probe),
        _ => sandbox_init::run(),
    }
}
