//! Tests operations that only a single-threaded process can perform. The test harness starts threads, so this program
//! has its own `main` and runs itself once per case.

#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    if let Some(case) = std::env::var_os(linux::CASE) {
        return linux::run(&case.to_string_lossy());
    }
    for case in ["becomes_root", "finds_out_the_limit"] {
        let program = std::env::current_exe().unwrap();
        let status = std::process::Command::new(program).env(linux::CASE, case).status().unwrap();
        assert!(status.success(), "{case}: {status}");
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use grosso_sys::namespace::{
        NetworkNamespace, UserNamespaceRefusal, isolate_process_user, isolate_thread_network,
        user_namespace_refusal,
    };
    use grosso_sys::tun::TunBuilder;

    /// Environment variable that names the test case.
    pub(super) const CASE: &str = "GROSSO_TEST_CASE";

    pub(super) fn run(case: &str) {
        let refusal = user_namespace_refusal().unwrap();
        match isolate_process_user() {
            Err(error) => {
                let refusal = refusal.expect("a refusal has a reason");
                println!("skipped: {error}: {refusal}; {:?}", refusal.remedy());
                assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "{case} was skipped");
            }
            Ok(()) => {
                assert_eq!(refusal, None);
                match case {
                    "becomes_root" => becomes_root(),
                    _ => finds_out_the_limit(),
                }
                println!("{case} ok");
            }
        }
    }

    fn becomes_root() {
        assert_eq!(fs::read_to_string("/proc/self/setgroups").unwrap(), "deny\n");
        let map = fs::read_to_string("/proc/self/uid_map").unwrap();
        let numbers: Vec<&str> = map.split_whitespace().collect();
        assert_eq!((numbers[0], numbers[2]), ("0", "1"));
        let other = NetworkNamespace::new().unwrap();
        isolate_thread_network().unwrap();
        assert!(!other.is_same(&NetworkNamespace::current().unwrap()).unwrap());
        let name = grosso_sys::interface::InterfaceName::new("tap%d").unwrap();
        match TunBuilder::tap(name).open() {
            Err(error) => println!("skipped: no TAP: {error}"),
            Ok(tap) => assert!(fs::exists(format!("/sys/class/net/{}", tap.name())).unwrap()),
        }
    }

    /// Checks that the limit is reported. The limit is per user namespace, so the test can set it to zero in a private
    /// one.
    fn finds_out_the_limit() {
        fs::write("/proc/sys/user/max_user_namespaces", "0").unwrap();
        let refusal = user_namespace_refusal().unwrap();
        assert_eq!(refusal, Some(UserNamespaceRefusal::LimitIsZero));
        assert!(refusal.unwrap().remedy().unwrap().contains("max_user_namespaces"));
    }
}
