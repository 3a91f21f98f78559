//! Profiles other than the default one whose superframes can be segmented again.

use grosso_rig::engine::coalesce_with;

use super::*;

fn numbered(ids: [u16; 2], df: bool) -> Vec<Vec<u8>> {
    let frame = |i: usize| marked(i * 100, 100, |ip| ip.id(ids[i]).df(df), |tcp| tcp);
    vec![frame(0), frame(1)]
}

#[test]
fn g14a_linux_6_12_wants_df_where_an_identification_stays() {
    for (ids, df, joins) in [
        ([8, 9], true, true),
        ([8, 9], false, true),
        ([8, 8], true, true),
        // K25: 200 bytes since 6.18, but 100 and 100 before.
        ([8, 8], false, false),
    ] {
        let frames = numbered(ids, df);
        let delivered = coalesce_with(Profile::linux_6_12(), &frames);
        assert_eq!(delivered.len(), if joins { 1 } else { 2 }, "{ids:?} DF {df}");
        let delivered = coalesce_with(Profile::linux(), &frames);
        assert_eq!(delivered.len(), 1, "7.2: {ids:?} DF {df}");
    }
}

#[test]
fn linux_6_12_gives_back_what_it_joined() {
    let frames: Vec<_> = (0..50).map(|i| packet(i * MSS, MSS, |tcp| tcp)).collect();
    // `coalesce_with` segments the deliveries and compares the packets.
    let delivered = coalesce_with(Profile::linux_6_12(), &frames);
    assert_eq!(packets(&delivered), [45, 5]);
}
