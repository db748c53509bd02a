//! `symbi-init`: see the library.

#![forbid(unsafe_code)]

fn main() {
    sandbox_init::run()
}
