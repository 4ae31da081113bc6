//! Gives the shared library the name that programs look for, and keeps it loaded: threads of open images, and what the
//! C library calls in forked children, run its code after `dlclose`. glibc itself keeps it only while a thread has
//! destructors of the library to run.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdrystone.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
