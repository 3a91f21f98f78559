//! In-place AES-GCM, for every key and ICV length.

use alloc::boxed::Box;
use core::{fmt, ptr};

use aes_gcm::{
    AesGcm, KeyInit, TagSize,
    aead::{AeadInOut, array::ArraySize, inout::InOutBuf},
    aes::{
        Aes128, Aes256,
        cipher::{
            BlockCipherEncrypt, BlockSizeUser,
            consts::{U8, U12, U16},
        },
    },
};

use super::association::{IcvLength, KeyMaterial, NoAssociation, SALT_BYTES};

/// Authenticated encryption of one packet.
pub(super) trait Cipher: fmt::Debug + Send + Sync {
    /// Encrypts `text` and writes the ICV. Returns `false` if the length of `text` or of `icv` is invalid.
    fn seal(&self, nonce: &Nonce, associated: &[u8], text: &mut [u8], icv: &mut [u8]) -> bool;

    /// Verifies the ICV and decrypts `text` if the ICV is valid. Otherwise returns `false` and leaves `text` unchanged.
    fn open(&self, nonce: &Nonce, associated: &[u8], text: &mut [u8], icv: &[u8]) -> bool;
}

/// Salt, followed by the packet's initialization vector (RFC 4106 section 4).
pub(super) type Nonce = [u8; SALT_BYTES + IV_BYTES];

/// Length of the initialization vector on the wire, in bytes.
pub(super) const IV_BYTES: usize = 8;

impl<Aes, Tag> Cipher for AesGcm<Aes, U12, Tag>
where
    Aes: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + Send + Sync,
    Tag: TagSize + ArraySize + Send + Sync,
{
    fn seal(&self, nonce: &Nonce, associated: &[u8], text: &mut [u8], icv: &mut [u8]) -> bool {
        let text = InOutBuf::from(text);
        match self.encrypt_inout_detached(nonce.into(), associated, text) {
            Ok(tag) if tag.len() == icv.len() => {
                icv.copy_from_slice(&tag);
                true
            }
            _ => false,
        }
    }

    fn open(&self, nonce: &Nonce, associated: &[u8], text: &mut [u8], icv: &[u8]) -> bool {
        let Ok(tag) = icv.try_into() else { return false };
        self.decrypt_inout_detached(nonce.into(), associated, InOutBuf::from(text), tag).is_ok()
    }
}

/// Returns the cipher for a key. The cipher's state is overwritten on drop.
pub(super) fn cipher(key: &KeyMaterial, icv: IcvLength) -> Result<Box<dyn Cipher>, NoAssociation> {
    match key.key().len() {
        16 => with_key::<Aes128>(key, icv),
        _ => with_key::<Aes256>(key, icv),
    }
}

/// Returns the memory address and length of the key state.
pub(super) fn position(cipher: &dyn Cipher) -> (*const u8, usize) {
    (ptr::from_ref(cipher).cast(), size_of_val(cipher))
}

fn with_key<Aes>(key: &KeyMaterial, icv: IcvLength) -> Result<Box<dyn Cipher>, NoAssociation>
where
    Aes: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + KeyInit + Send + Sync + 'static,
{
    let aes = Aes::new_from_slice(key.key()).map_err(|_| NoAssociation::KeyLength)?;
    Ok(match icv {
        IcvLength::Eight => Box::new(AesGcm::<Aes, U12, U8>::from(aes)),
        IcvLength::Twelve => Box::new(AesGcm::<Aes, U12, U12>::from(aes)),
        IcvLength::Sixteen => Box::new(AesGcm::<Aes, U12, U16>::from(aes)),
    })
}

#[cfg(test)]
mod tests {
    use std::{format, vec::Vec};

    use grosso_testkit::esp_vectors::{VECTORS, bytes};

    use super::*;

    #[test]
    fn keys_are_overwritten_when_dropped_and_never_printed() {
        fn assert_overwritten<T: zeroize::ZeroizeOnDrop>() {}
        assert_overwritten::<AesGcm<Aes128, U12, U8>>();
        assert_overwritten::<AesGcm<Aes256, U12, U16>>();
        let key = KeyMaterial::aes_gcm(&[0xa7; 20]).unwrap();
        let text = format!("{:?}", cipher(&key, IcvLength::Twelve).unwrap());
        assert!(!text.contains("167") && !text.contains("a7"), "{text}");
    }

    #[test]
    fn published_packets_are_made_and_opened() {
        for vector in VECTORS {
            let (key, nonce) = (bytes(vector.key), bytes(vector.nonce));
            let associated = bytes(vector.associated);
            let key = KeyMaterial::aes_gcm(&[&key, &nonce[..4]].concat()).unwrap();
            let cipher = cipher(&key, IcvLength::Sixteen).unwrap();
            let nonce: Nonce = nonce.try_into().unwrap();
            let (mut text, mut icv) = (bytes(vector.plaintext), [0; 16]);
            assert!(cipher.seal(&nonce, &associated, &mut text, &mut icv));
            assert_eq!([&text[..], &icv].concat(), bytes(vector.sealed), "{vector:?}");
            assert!(cipher.open(&nonce, &associated, &mut text, &icv));
            assert_eq!(text, bytes(vector.plaintext));
        }
    }

    /// Checks that each shorter ICV is a prefix of the longest one (RFC 4106 section 6).
    #[test]
    fn shorter_icvs_are_the_beginning_of_the_longest() {
        let key = KeyMaterial::aes_gcm(&[3; 36]).unwrap();
        let icvs: Vec<Vec<u8>> = [IcvLength::Eight, IcvLength::Twelve, IcvLength::Sixteen]
            .map(|icv| {
                let cipher = cipher(&key, icv).unwrap();
                let (mut text, mut tag) = (*b"in the clear", std::vec![0; icv.bytes()]);
                assert!(cipher.seal(&[1; 12], b"header", &mut text, &mut tag));
                assert_ne!(&text, b"in the clear");
                let mut wrong = tag.clone();
                wrong[0] ^= 1;
                let sealed = text;
                assert!(!cipher.open(&[1; 12], b"header", &mut text, &wrong));
                assert!(!cipher.open(&[1; 12], b"header", &mut text, &tag[1..]));
                assert_eq!(text, sealed);
                assert!(cipher.open(&[1; 12], b"header", &mut text, &tag));
                assert_eq!(&text, b"in the clear");
                tag
            })
            .to_vec();
        assert_eq!([icvs[0].len(), icvs[1].len(), icvs[2].len()], [8, 12, 16]);
        assert!(icvs[2].starts_with(&icvs[1]) && icvs[1].starts_with(&icvs[0]));
    }
}
