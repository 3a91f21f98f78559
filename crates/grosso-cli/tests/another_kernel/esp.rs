//! ESP in transport mode, with the kernel's ESP as the peer.

use std::{fs, io};

use rustix::process::Signal;

use super::{report, wire::Wire};
use crate::network::{A, B, Running, set_up};

const TITLE: &str = "esp, transport, rfc4106(gcm(aes)) 96";

#[test]
#[ignore = "boots a VM: bash .ci/run guests"]
fn esp_carries_what_another_kernel_encrypts_and_decrypts() {
    let titles = [4, 6].map(|version| format!("{TITLE}, IPv{version}"));
    let Some(mut wire) = Wire::new(titles.into_iter()) else { return };
    wire.leave_the_device().unwrap();
    for version in [0, 1] {
        wire.encrypted(version).unwrap();
    }
}

impl Wire {
    /// Removes the addresses of the VM's device, so that only Grosso uses it and the host's own stack answers no
    /// requests.
    fn leave_the_device(&self) -> io::Result<()> {
        self.ip("addr flush dev t0")?;
        let quiet = || {
            fs::write("/proc/sys/net/ipv6/conf/t0/disable_ipv6", "1")?;
            fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1")
        };
        self.host.run(quiet)?
    }

    /// Exchanges data with a separate key for each direction, or over IPv6 with one key for both, as in table R2. The
    /// kernel's two associations, for IPv4 and IPv6, count their sequence numbers separately.
    fn encrypted(&mut self, version: usize) -> io::Result<()> {
        let is_shared = version == 1;
        let bytes = if is_shared { ["0b", "0b"] } else { ["5a", "c3"] };
        let keys = bytes.map(|byte| format!("{byte}{version:02}").repeat(10));
        self.guest.run(&associations(version, &keys))?;
        // The table and the keys are derived from the output of the other kernel's `ip`.
        fs::write(self.folder.path().join("xfrm"), self.guest.run("ip xfrm state")?)?;
        let shared = if is_shared { " --shared-key" } else { "" };
        let line =
            format!("config esp xfrm --here {} --key-file keys{version}{shared}", B[version]);
        let table = self.grosso(&line)?;
        assert_eq!(table.contains("shared-key = true\n"), is_shared, "{table}");
        assert!(table.contains("icv-bits = 96\nreplay-window = 32\n"), "{table}");
        let file = format!(
            "[[path]]\nright = {{ port = \"tap:g0\", mtu = 1400, fragments = {{}} }}\n\
             [path.left]\nport = \"t0\"\nfragments = {{ mtu = 1500 }}\n{table}"
        );
        fs::write(self.folder.path().join("esp.toml"), file)?;
        let mut program = self.program();
        let running = Running::spawn(self.host.host(program.args(["run", "-c", "esp.toml"]))?);
        running.wait_for_line("<->");
        self.host.run(|| set_up("g0", B))??;
        let rates = self.exchange(A[version]);
        let ended = running.stop(Signal::TERM);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let told = |error| io::Error::other(format!("{error}\n{ended:?}"));
        report(TITLE, version, &rates.map_err(told)?);
        Ok(())
    }
}

/// Returns the script with which the guest creates its associations and policies. The policies reject unencrypted TCP
/// and UDP and accept neighbor discovery.
fn associations(version: usize, [out, back]: &[String; 2]) -> String {
    let (guest, host) = (A[version], B[version]);
    let mut script = "set -e\nip xfrm state flush\nip xfrm policy flush\n".to_owned();
    for (from, to, spi, key, way) in
        [(guest, host, "0x1001", out, "out"), (host, guest, "0x1002", back, "in")]
    {
        let ends = format!("src {from} dst {to}");
        script += &format!(
            "ip xfrm state add {ends} proto esp spi {spi} mode transport replay-window 32 \
             aead 'rfc4106(gcm(aes))' 0x{key} 96\n"
        );
        for protocol in [6, 17] {
            script += &format!(
                "ip xfrm policy add {ends} proto {protocol} dir {way} tmpl {ends} proto esp mode transport\n"
            );
        }
    }
    script
}
