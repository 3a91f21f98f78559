-- Shows the offload metadata of a Grosso capture in Wireshark (docs/pcapng-option.md).
--
-- Wireshark passes the flags of a packet and the file offset of its block to Lua, but no custom option. So the flags
-- are always shown, and the rest if the preference `grosso.file` names the capture: a file, not a pipe.
--
--   tshark -X lua_script:grosso.lua -o grosso.file:send.pcapng -r send.pcapng -Y grosso.size -T fields -e grosso.size

set_preference("frame.show_file_off", true)

local grosso = Proto("grosso", "Grosso offload metadata")

local CHECKSUMS = { [0] = "unknown", "verified", "complete", "partial", "partial, as the headers imply" }
local CUTS = { [0] = "unknown", "segments of equal size", "segments of listed sizes", "IP fragments" }
local TRANSPORTS = { [0] = "unknown", "TCP", "UDP" }

local f = {
    not_ready = ProtoField.bool("grosso.not_ready", "Checksum not ready"),
    valid = ProtoField.bool("grosso.valid", "Checksum valid"),
    segmented = ProtoField.bool("grosso.tso", "TCP segmentation offloaded"),
    checksum = ProtoField.uint8("grosso.checksum", "Checksum", base.DEC, CHECKSUMS),
    levels = ProtoField.uint8("grosso.levels", "Additional verified checksums"),
    start = ProtoField.uint16("grosso.start", "Start of the checksummed data"),
    offset = ProtoField.uint16("grosso.offset", "Offset of the checksum field from that start"),
    sum = ProtoField.uint16("grosso.sum", "Sum from the first network header", base.HEX),
    cut = ProtoField.uint8("grosso.cut", "Split into", base.DEC, CUTS),
    size = ProtoField.uint16("grosso.size", "Segment payload size"),
    segments = ProtoField.uint16("grosso.segments", "Segments"),
    fixed = ProtoField.uint8("grosso.fixed_ids", "Levels with constant identifications", base.HEX),
    cwr = ProtoField.bool("grosso.cwr_on_all", "CWR on every packet"),
    was_partial = ProtoField.bool("grosso.were_partial", "Checksums were partial before merging"),
    untrusted = ProtoField.bool("grosso.untrusted", "From an untrusted source"),
    transport = ProtoField.uint8("grosso.transport", "Transport", base.DEC, TRANSPORTS),
    vlan_protocol = ProtoField.uint16("grosso.vlan_protocol", "VLAN protocol", base.HEX),
    vlan_tag = ProtoField.uint16("grosso.vlan_tag", "VLAN tag", base.HEX),
    hash = ProtoField.uint32("grosso.hash", "Receive hash", base.HEX),
    gap = ProtoField.uint32("grosso.gap_ns", "Nanoseconds since the previous packet"),
    part = ProtoField.uint32("grosso.part", "Payload size of a packet"),
    tunnel = ProtoField.uint32("grosso.tunnel", "Tunnel on a non-standard port", base.HEX),
}
grosso.fields = f
grosso.prefs.file = Pref.string("File", "", "Path of the open capture; packet options are read from it")

local flags_of = Field.new("frame.packet_flags")
local place_of = Field.new("frame.file_off")

local ENHANCED_PACKET, OPTION, ENTERPRISE = 6, 2989, 32473
local MAGIC, BODY_BYTES = "GROSSO\0\1", 32
local VERIFIED, COMPLETE, PARTIAL = 1, 2, 3
local LISTS = { f.gap, f.part, f.tunnel }

-- Returns the custom option of the block at an offset in a file, from its magic on, if there is one.
local function option_at(file, place)
    file:seek("set", place)
    local head = file:read(28)
    if not head or #head < 28 then return end
    local order = Struct.unpack("<I4", head) == ENHANCED_PACKET and "<" or ">"
    if Struct.unpack(order .. "I4", head) ~= ENHANCED_PACKET then return end
    local length, captured = Struct.unpack(order .. "I4", head, 5), Struct.unpack(order .. "I4", head, 21)
    local padded = captured + (-captured) % 4
    if length < 32 + padded then return end
    file:seek("cur", padded)
    local options, at = file:read(length - 32 - padded) or "", 1
    while at + 3 <= #options do
        local code, bytes = Struct.unpack(order .. "I2I2", options, at)
        if code == 0 or at + 3 + bytes > #options then return end
        local value = options:sub(at + 8, at + 3 + bytes)
        if code == OPTION and #value >= BODY_BYTES and value:sub(1, #MAGIC) == MAGIC
            and Struct.unpack(order .. "I4", options, at + 4) == ENTERPRISE then
            return value
        end
        at = at + 4 + bytes + (-bytes) % 4
    end
end

local function has(number, bit)
    return math.floor(number / bit) % 2 == 1
end

local function add_segmentation(tree, option)
    tree:add(f.cut, option(11, 1))
    tree:add(f.size, option(16, 2))
    tree:add(f.segments, option(18, 2))
    tree:add(f.fixed, option(20, 1))
    local flags = option(21, 1):uint()
    tree:add(f.cwr, option(21, 1), has(flags, 1))
    tree:add(f.was_partial, option(21, 1), has(flags, 2))
    tree:add(f.untrusted, option(21, 1), has(flags, 4))
    tree:add(f.transport, option(26, 1))
end

local function add_lists(tree, option)
    local at = BODY_BYTES
    while at + 4 <= option:len() do
        local field, entries = LISTS[option(at, 1):uint()], option(at + 2, 2):uint()
        at = at + 4
        if at + 4 * entries > option:len() then return end
        for entry = 0, entries - 1 do
            if field then tree:add(field, option(at + 4 * entry, 4)) end
        end
        at = at + 4 * entries
    end
end

local function add_option(tree, value)
    local option = ByteArray.new(value, true):tvb("Grosso option")
    local present, checksum = option(8, 1):uint(), option(9, 1):uint()
    tree:add(f.checksum, option(9, 1))
    if checksum == VERIFIED then tree:add(f.levels, option(10, 1)) end
    if checksum == COMPLETE then tree:add(f.sum, option(14, 2)) end
    if checksum == PARTIAL then
        tree:add(f.start, option(12, 2))
        tree:add(f.offset, option(14, 2))
    end
    if has(present, 1) then add_segmentation(tree, option) end
    if has(present, 2) then
        tree:add(f.vlan_protocol, option(22, 2))
        tree:add(f.vlan_tag, option(24, 2))
    end
    if has(present, 4) then tree:add(f.hash, option(28, 4)) end
    add_lists(tree, option)
end

local open, opened

function grosso.init()
    if open then open:close() end
    open, opened = nil, nil
end

-- The capture that the preference names, opened once.
local function capture()
    if opened ~= grosso.prefs.file then
        if open then open:close() end
        opened = grosso.prefs.file
        open = opened ~= "" and io.open(opened, "rb") or nil
    end
    return open
end

function grosso.dissector(_, _, root)
    local flags, place, file = flags_of(), place_of(), capture()
    local value = file and place and option_at(file, tonumber(tostring(place.value)))
    if not flags and not value then return end
    local tree = root:add(grosso)
    if flags then
        tree:add(f.not_ready, has(flags.value, 512)):set_generated()
        tree:add(f.valid, has(flags.value, 1024)):set_generated()
        tree:add(f.segmented, has(flags.value, 2048)):set_generated()
    end
    if value then add_option(tree, value) end
end

register_postdissector(grosso)
