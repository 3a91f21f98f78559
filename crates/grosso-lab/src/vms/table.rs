//! The results as a table and as charts.

use core::fmt::Write;

use super::{VmFigures, VmFindings, VmGroup, VmParameters, VmPlace, VmRow};
use crate::{
    page::{Bar, Chart, Column},
    report::{Environment, Findings, Knob},
    statistics::{Spread, digits},
};

impl Findings for VmFindings {
    type Parameters = VmParameters;

    const KNOBS: &'static [Knob] = KNOBS;
    const LEGEND: &'static str = LEGEND;

    fn heading(&self, environment: &Environment<VmParameters>) -> String {
        format!(
            "one TCP stream; VMs emulated by QEMU (TCG); CPUs: {}\nguest: {}\n{}",
            environment.processors,
            environment.parameters.guest,
            environment.spread_lines()
        )
    }

    fn write(&self, text: &mut String) {
        for VmGroup { place, rows } in &self.groups {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(text, "\n{place}\n{}", HEADING.join("\n"));
            rows.iter().for_each(|row| row.write(text));
        }
    }

    fn headline(&self) -> String {
        use super::VmCarrier::{Qemu, VhostUser};
        let speed = |carrier| {
            let row = self.row(VmPlace::Host, carrier)?;
            Some(row.to_guest.megabits_a_second.median)
        };
        speed(VhostUser).zip(speed(Qemu)).map_or_else(
            || "Cannot boot VMs on this host".into(),
            |(ours, theirs)| {
                format!(
                    "Streams to a VM: {ours:.0} Mb/s over vhost-user, {theirs:.0} Mb/s over QEMU's TAP"
                )
            },
        )
    }

    fn charts(&self) -> String {
        let columns = [
            Column::new(
                "Mb/s to the guest",
                self.rows().map(|row| row.to_guest.megabits_a_second.max),
            ),
            Column::new(
                "Mb/s from the guest",
                self.rows().map(|row| row.from_guest.megabits_a_second.max),
            ),
        ];
        let chart = |VmGroup { place, rows }: &VmGroup| {
            let rows = rows.iter().map(|row| (row.carrier.to_string(), row.bars())).collect();
            Chart { title: place.to_string(), columns, rows }.draw()
        };
        self.groups.iter().map(chart).collect()
    }
}

impl VmRow {
    fn bars(&self) -> [Bar; 2] {
        let bar = |spread: Spread| {
            let values = spread.values().to_vec();
            Bar::middle("path", spread, values.into_iter(), format!("{:.0}", spread.median))
        };
        [bar(self.to_guest.megabits_a_second), bar(self.from_guest.megabits_a_second)]
    }

    fn write(&self, text: &mut String) {
        let _ = write!(text, "{:<12}", self.carrier.to_string());
        for VmFigures { megabits_a_second, path_s_per_gb, machine_s_per_gb } in
            [self.to_guest, self.from_guest]
        {
            let Spread { median, min, max, .. } = megabits_a_second;
            let rate = format!("{median:.0} ({min:.0}-{max:.0})");
            let path = match path_s_per_gb.max {
                0.0 => "-".to_owned(),
                _ => digits(path_s_per_gb.median),
            };
            let _ = write!(text, "  {rate:<18}{path:>5} {:>6}", digits(machine_s_per_gb.median));
        }
        text.push('\n');
    }
}

/// Heading of the columns of [`VmRow::write`].
const HEADING: [&str; 2] = [
    "              to the guest          CPU s/GB  from the guest        CPU s/GB",
    "backend       Mb/s               path   QEMU  Mb/s               path   QEMU",
];

const LEGEND: &str = "\
TCP between a VM that QEMU emulates and a network namespace on this machine, or between two such VMs. A bar is the \
median, and each dot is one run. Emulated CPUs are slow, so compare the backends only with each other.";

const KNOBS: &[Knob] = &[
    Knob {
        seen: "the VM's frames are passed in system calls",
        turn: &["grosso bridge tap:vm0 vhost-user:/run/vm.sock"],
    },
    Knob {
        seen: "the two endpoints support different offloads",
        turn: &["grosso bridge tap:vm0 unix:/run/vm.sock,vnet,offloads=csum+tso4"],
    },
];
