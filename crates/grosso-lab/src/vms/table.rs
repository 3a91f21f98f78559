//! A table and charts of the results.

use super::{VmFigures, VmFindings, VmGroup, VmParameters, VmPlace, VmRow};
use crate::{
    page::{Bar, BarColumn, charts},
    report::{Environment, Findings, Knob},
    statistics::{Spread, digits, whole},
    table::{self, Column},
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
            *text += &format!("\n{place}\n");
            match place {
                VmPlace::ReceiveBuffers => table::write(&BUFFER_COLUMNS, rows, text),
                _ => table::write(&COLUMNS, rows, text),
            }
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
        let is_counted = |group: &&VmGroup| group.place == VmPlace::ReceiveBuffers;
        let draw = |bars, are_counted| {
            let groups = self.groups.iter().filter(|group| is_counted(group) == are_counted);
            let groups = groups.map(|group| (group.place.to_string(), &group.rows));
            charts(bars, |row: &VmRow| row.carrier.to_string(), groups)
        };
        draw(&BARS, false) + &draw(&BUFFER_BARS, true)
    }
}

impl VmFigures {
    fn rate(&self) -> String {
        self.megabits_a_second.text(whole)
    }

    /// Formats the cost of the program between the endpoints, or returns a dash if there is none.
    fn path(&self) -> String {
        match self.path_s_per_gb.max {
            0.0 => "-".to_owned(),
            _ => digits(self.path_s_per_gb.median),
        }
    }

    fn machine(&self) -> String {
        digits(self.machine_s_per_gb.median)
    }

    fn bar(&self) -> Bar {
        bar(self.megabits_a_second)
    }
}

fn bar(figure: Spread) -> Bar {
    Bar::middle("path", figure, figure.values().iter().copied(), whole(figure.median))
}

const COLUMNS: [Column<VmRow>; 7] = [
    Column::left(&["", "backend"], 14, |row| row.carrier.to_string()),
    Column::left(&["to the guest", "Mb/s"], 18, |row| row.to_guest.rate()),
    Column::right(&["    CPU s/GB", "path"], 5, |row| row.to_guest.path()),
    Column::right(&["", "QEMU"], 7, |row| row.to_guest.machine()),
    Column::left(&["  from the guest", "  Mb/s"], 20, |row| format!("  {}", row.from_guest.rate())),
    Column::right(&["    CPU s/GB", "path"], 5, |row| row.from_guest.path()),
    Column::right(&["", "QEMU"], 7, |row| row.from_guest.machine()),
];

/// Columns for receive buffers. The speed of guests whose instructions are counted is not comparable with that of
/// others, so it has no column.
const BUFFER_COLUMNS: [Column<VmRow>; 3] = [
    Column::left(&["", "receive buffers"], 22, |row| row.carrier.to_string()),
    Column::left(&["instructions per KB", "to the guest"], 24, |row| {
        row.to_guest.guest_instructions_per_kb.text(whole)
    }),
    Column::left(&["", "from the guest"], 24, |row| {
        row.from_guest.guest_instructions_per_kb.text(whole)
    }),
];

const BUFFER_BARS: [BarColumn<VmRow>; 2] = [
    BarColumn::new(
        "instructions per KB to the guest",
        |row| row.to_guest.guest_instructions_per_kb.max,
        |row| bar(row.to_guest.guest_instructions_per_kb),
    ),
    BarColumn::new(
        "instructions per KB from the guest",
        |row| row.from_guest.guest_instructions_per_kb.max,
        |row| bar(row.from_guest.guest_instructions_per_kb),
    ),
];

const BARS: [BarColumn<VmRow>; 2] = [
    BarColumn::new(
        "Mb/s to the guest",
        |row| row.to_guest.megabits_a_second.max,
        |row| row.to_guest.bar(),
    ),
    BarColumn::new(
        "Mb/s from the guest",
        |row| row.from_guest.megabits_a_second.max,
        |row| row.from_guest.bar(),
    ),
];

const LEGEND: &str = "\
TCP between a VM that QEMU emulates and a network namespace on this machine, or between two such VMs. A bar is the \
median, and each dot is one run. Emulated CPUs are slow, so compare the backends only with each other. Instructions \
per KB are those that the guest executes for 1000 bytes.";

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
