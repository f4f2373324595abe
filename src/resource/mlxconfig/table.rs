//! The tables of firmware tools. A row is marks, a name and one cell for each column of the header; cells have no blanks in
//! them, and between long ones there is a single blank, so that neither widths nor runs of blanks tell where one ends.
//! Source: mstflint, mlxconfig/mlxcfg_ui.cpp (widths of 16 up to 4.25, 20 up to 4.35, 33 since).

use super::value::Value;
use std::collections::BTreeMap;

/// What a tool told of one card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Table {
    rows: BTreeMap<String, Row>,
    /// The names of all parameters, where a wanted one isn't among them.
    pub(super) names: Vec<String>,
    /// What parameters can be, by their names without the port, where that was asked for.
    values: BTreeMap<String, Vec<Value>>,
    /// Whether there was a table at all.
    pub(super) seen: bool,
    /// Whether it has a column of the current values.
    pub(super) current: bool,
    /// Whether it has a column of defaults.
    pub(super) default: bool,
    /// What the tool complained about though it printed a table.
    pub(super) complaint: Option<String>,
}

/// One parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) read_only: bool,
    pub(super) default: Option<Value>,
    pub(super) current: Option<Value>,
    pub(super) next: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Default,
    Current,
    Next,
    New,
}

impl Table {
    /// Reads what a tool printed of this card: of several blocks (`Device #1:`) the one that names it, or else the first.
    pub(super) fn read(text: &str, address: &str) -> Table {
        let mut blocks: Vec<(Option<&str>, Table)> = vec![(None, Table::default())];
        let mut columns: Vec<Column> = Vec::new();
        let mut complaints: Vec<String> = Vec::new();
        let mut complaining = false;
        for line in text.lines() {
            if line.starts_with("Device #") {
                blocks.push((None, Table::default()));
                columns.clear();
            }
            let Some((device, table)) = blocks.last_mut() else { continue };
            if let Some(name) = line.strip_prefix("Device:").or_else(|| line.strip_prefix("PCI device:")) {
                *device = Some(name.trim());
            } else if let Some(header) = line.strip_prefix("Configurations:") {
                columns = columns_of(header);
                table.seen = true;
                table.current |= columns.contains(&Column::Current);
                table.default |= columns.contains(&Column::Default);
            } else if let Some(value) = line.strip_prefix("value ") {
                if let [name, word, number] = value.split(' ').collect::<Vec<_>>().as_slice() {
                    let value = Value::of(&format!("{word}({})", Value::of(number).plain()));
                    table.values.entry((*name).to_owned()).or_default().push(value);
                }
            } else if let Some(names) = line.strip_prefix("names ") {
                table.names = names.split_whitespace().map(str::to_owned).collect();
            } else if let Some(complaint) = line.strip_prefix("-E-") {
                complaints.push(complaint.trim().to_owned());
            } else if let Some(last) = complaints.last_mut().filter(|_| complaining && line.starts_with(' ')) {
                // What belongs to a complaint is indented like a row.
                last.push(' ');
                last.push_str(line.trim());
            } else if let Some((name, row)) = row(line, &columns) {
                table.rows.insert(name, row);
            }
            complaining = line.starts_with("-E-") || (complaining && line.starts_with(' '));
        }
        let named =
            blocks.iter().position(|(device, table)| table.seen && device.is_some_and(|d| same_device(d, address)));
        let at = named.or_else(|| blocks.iter().position(|(_, table)| table.seen)).unwrap_or_default();
        let (device, mut table) = blocks.swap_remove(at);
        // A card that was asked twice, for its table and for elements of arrays, has a block of each.
        let others = blocks.iter_mut().filter(|(other, _)| device.is_some() && *other == device);
        for (_, more) in others {
            table.rows.append(&mut more.rows);
            table.values.append(&mut more.values);
        }
        if table.names.is_empty() {
            table.names = blocks.into_iter().map(|(_, other)| other.names).find(|n| !n.is_empty()).unwrap_or_default();
        }
        complaints.retain(|c| *c != "not root");
        table.complaint = (!complaints.is_empty()).then(|| complaints.join("; "));
        table
    }

    /// The row of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&Row> {
        self.rows.get(name)
    }

    /// What a parameter can be; nothing where that isn't known.
    pub(super) fn values(&self, name: &str) -> &[Value] {
        let stem = name.rsplit_once("_P").filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        self.values.get(stem.map_or(name, |(stem, _)| stem)).map(Vec::as_slice).unwrap_or_default()
    }

    /// All rows that were told.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&str, &Row)> {
        self.rows.iter().map(|(name, row)| (name.as_str(), row))
    }

    /// Whether the card has this parameter, told or not.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.rows.contains_key(name) || self.names.iter().any(|n| n == name)
    }
}

/// Whether two names are of the same card: tools print the address as it was given, with the domain or without.
fn same_device(printed: &str, asked: &str) -> bool {
    printed == asked || asked.strip_prefix("0000:").is_some_and(|short| printed.eq_ignore_ascii_case(short))
}

fn columns_of(header: &str) -> Vec<Column> {
    let titles =
        [("Default", Column::Default), ("Current", Column::Current), ("Next Boot", Column::Next), ("New", Column::New)];
    let mut found: Vec<(usize, Column)> =
        titles.iter().filter_map(|(title, column)| Some((header.find(title)?, *column))).collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, column)| column).collect()
}

fn row(line: &str, columns: &[Column]) -> Option<(String, Row)> {
    if columns.is_empty() || !line.starts_with([' ', '*']) {
        return None;
    }
    let rest = line.trim_start_matches(['*', ' ']);
    let (read_only, rest) = match rest.strip_prefix("RO ") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let (name, cells) = words.split_first()?;
    if cells.len() != columns.len() {
        return None;
    }
    let cell = |column: Column| columns.iter().position(|c| *c == column).map(|at| Value::of(cells[at]));
    let (default, current) = (cell(Column::Default), cell(Column::Current));
    Some(((*name).to_owned(), Row { read_only, default, current, next: cell(Column::Next)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(table: &Table, name: &str) -> [Option<String>; 3] {
        let row = table.get(name).unwrap_or_else(|| panic!("{name}: {table:?}"));
        let text = |v: &Option<Value>| v.as_ref().map(|v| v.text.clone());
        [text(&row.default), text(&row.current), Some(row.next.text.clone())]
    }

    fn cells(texts: [&str; 3]) -> [Option<String>; 3] {
        texts.map(|t| (!t.is_empty()).then(|| t.to_owned()))
    }

    #[test]
    fn the_layout_of_20_characters() {
        let table = Table::read(include_str!("samples/query_e_width20.txt"), "0000:4b:00.0");
        assert_eq!(table.rows().count(), 12);
        assert!(table.seen && table.current && table.default && table.complaint.is_none());
        // Long values are a single blank apart.
        let long = "PCI_ATOMIC_DISABLED_EXT_ATOMIC_ENABLED(0)";
        assert_eq!(shown(&table, "PCI_ATOMIC_MODE"), cells([long, long, long]));
        assert_eq!(shown(&table, "ROCE_CONTROL"), cells(["ROCE_ENABLE(2)", "DEVICE_DEFAULT(0)", "ROCE_ENABLE(2)"]));
        assert_eq!(shown(&table, "LEGACY_BOOT_PROTOCOL"), cells(["PXE(1)", "PXE(1)", "NONE(0)"]));
        assert_eq!(shown(&table, "PCI_WR_ORDERING"), cells(["per_mkey(0)"; 3]));
        assert_eq!(shown(&table, "PCI_DOWNSTREAM_PORT_OWNER"), cells(["Array[0..15]"; 3]));
        assert!(table.rows().all(|(_, row)| !row.read_only));
    }

    #[test]
    fn the_layout_of_33_characters_with_a_read_only_row() {
        let table = Table::read(include_str!("samples/query_e_width33_ro.txt"), "0000:8e:00.0");
        assert_eq!(table.rows().count(), 7);
        assert_eq!(shown(&table, "LINK_TYPE_P1"), cells(["IB(1)", "IB(1)", "ETH(2)"]));
        assert_eq!(shown(&table, "SOME_READ_ONLY_PARAM"), cells(["1", "1", "1"]));
        let read_only: Vec<&str> = table.rows().filter(|(_, row)| row.read_only).map(|(name, _)| name).collect();
        assert_eq!(read_only, ["SOME_READ_ONLY_PARAM"]);
    }

    #[test]
    fn a_plain_query_has_the_next_boot_alone() {
        let text = include_str!("samples/query_set_prompt.txt");
        let (query, set) = text.split_once("set ROCE_CONTROL").unwrap();
        let table = Table::read(query, "0000:4b:00.0");
        assert!(table.seen && !table.current && !table.default);
        assert_eq!(table.rows().count(), 4);
        assert_eq!(shown(&table, "ROCE_CONTROL"), cells(["", "", "ROCE_ENABLE(2)"]));
        // And a set shows what it makes of it.
        let table = Table::read(set, "0000:4b:00.0");
        assert_eq!(shown(&table, "ROCE_CONTROL"), cells(["", "", "ROCE_ENABLE(2)"]));
        let table = Table::read(include_str!("samples/set_results.txt"), "0000:4b:00.0");
        assert_eq!(shown(&table, "NUM_OF_VFS"), cells(["", "", "8"]));
    }

    #[test]
    fn older_layouts_and_older_cards() {
        // 16 characters a cell; a card without current values.
        let text = "\nDevice #1:\n----------\n\nDevice type:    ConnectX3Pro    \nPCI device:     /dev/mst/mt4103_pciconf0\n\n\
            Configurations:                              Default         Next Boot       \n\
            \x20        SRIOV_EN                            False(0)        True(1)         \n\
            *        NUM_OF_VFS                          8               16              \n\
            Device Firmware does not support reading current configurations\n";
        let table = Table::read(text, "/dev/mst/mt4103_pciconf0");
        assert!(table.default && !table.current);
        assert_eq!(shown(&table, "NUM_OF_VFS"), cells(["8", "", "16"]));
        assert_eq!(table.rows().count(), 2);
    }

    #[test]
    fn of_several_blocks_the_one_that_was_asked_for() {
        let block = |number: u32, device: &str, vfs: &str| {
            format!(
                "\nDevice #{number}:\n----------\n\nDevice type:        ConnectX6DX\nDevice:             {device}\n\n\
                 Configurations:                                     Next Boot\n        NUM_OF_VFS          {vfs}\n"
            )
        };
        let text =
            block(1, "0000:4b:00.0", "4") + &block(2, "4c:00.0", "8") + &block(3, "/dev/mst/mt4125_pciconf2", "16");
        for (address, vfs) in [("0000:4b:00.0", "4"), ("0000:4c:00.0", "8"), ("/dev/mst/mt4125_pciconf2", "16")] {
            assert_eq!(shown(&Table::read(&text, address), "NUM_OF_VFS"), cells(["", "", vfs]));
        }
    }

    #[test]
    fn a_table_with_complaints_is_a_table() {
        let text = "Configurations:      Default  Current  Next Boot\n        NUM_OF_VFS   0  0  8\n\
             -E- Failed to query some of the TLVs:\n    Failed to query the current values of the following TLVs:\n    \
             NV_A NV_B NV_C NV_D\nnames NUM_OF_VFS SRIOV_EN\n";
        let table = Table::read(text, "0000:4b:00.0");
        assert_eq!(
            table.complaint.as_deref(),
            Some(
                "Failed to query some of the TLVs: Failed to query the current values of the following TLVs: NV_A NV_B NV_C NV_D"
            )
        );
        assert!(table.knows("SRIOV_EN") && table.get("SRIOV_EN").is_none());
        assert_eq!(table.rows().count(), 1);
    }

    /// The same values as JSON (`-j FILE`, which netplay doesn't use: it writes a file) mean the same.
    #[test]
    fn the_values_are_those_of_json() {
        let text = include_str!("samples/query.json");
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        let of = |name: &str, key: &str| match &json["Device #1"]["tlv_configuration"][name][key] {
            serde_json::Value::String(text) => Value::of(text),
            other => Value::of(&other.to_string()),
        };
        let row = |name: &str| [of(name, "default_value"), of(name, "current_value"), of(name, "next_value")];
        let [default, current, next] = row("NUM_OF_VFS");
        assert_eq!((default.same(&current), current.same(&next)), (Some(true), Some(false)));
        let [default, current, next] = row("ROCE_CONTROL");
        assert_eq!(current.or_default(Some(&default)).same(&next), Some(true));
        assert!(of("HOST_CHAINING_DESCRIPTORS", "next_value").unknown());
    }
}
