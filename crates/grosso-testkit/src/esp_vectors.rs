//! Published ESP packets with AES-GCM: draft-mcgrew-gcm-test-01, section 4. The cases with a 192-bit key are omitted.

/// A published packet. All values are hexadecimal strings.
#[derive(Clone, Copy, Debug)]
pub struct Vector {
    /// The key.
    pub key: &'static str,
    /// Salt followed by the initialization vector.
    pub nonce: &'static str,
    /// SPI and sequence number as they are authenticated: 12 bytes if the sequence number is extended.
    pub associated: &'static str,
    /// The plaintext, including the ESP trailer.
    pub plaintext: &'static str,
    /// The ciphertext, followed by a 16-byte ICV.
    pub sealed: &'static str,
}

impl Vector {
    /// Returns whether the vector's sequence number is extended.
    pub fn is_extended(&self) -> bool {
        self.associated.len() == 24
    }

    /// Returns the vector's SPI.
    pub fn spi(&self) -> u32 {
        u32::from_str_radix(&self.associated[..8], 16).expect("hexadecimal")
    }

    /// Returns the vector's sequence number.
    pub fn sequence(&self) -> u64 {
        u64::from_str_radix(&self.associated[8..], 16).expect("hexadecimal")
    }

    /// Returns everything after the packet's IP header. The ESP header contains only the low half of the sequence
    /// number.
    pub fn packet(&self) -> Vec<u8> {
        let low = &self.associated[self.associated.len() - 8..];
        bytes(&[&self.associated[..8], low, &self.nonce[8..], self.sealed].concat())
    }
}

/// Decodes a hexadecimal string.
///
/// # Panics
/// Panics if the string is not hexadecimal.
pub fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().map(|digit| digit.to_digit(16).expect("hexadecimal") as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The published packets.
pub const VECTORS: &[Vector] = &[
    Vector {
        key: "4c80cdefbb5d10da906ac73c3613a634",
        nonce: "2e443b684956ed7e3b244cfe",
        associated: "000043218765432100000000",
        plaintext: "45000048699a000080114db7c0a80102c0a801010a9bf15638d3010000010000\
                    00000000045f736970045f756470037369700963796265726369747902646b00\
                    0021000101020201",
        sealed: "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34\
                 cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce\
                 61bc17d768fd9732459018148f6cbe722fd04796562dfdb4",
    },
    Vector {
        key: "feffe9928665731c6d6a8f9467308308",
        nonce: "cafebabefacedbaddecaf888",
        associated: "0000a5f80000000a",
        plaintext: "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d00100\
                    0001000000000000037369700963796265726369747902646b00000100010001",
        sealed: "deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d114d2a5c\
                 3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd1\
                 83b70d3aa8bc6ee4c309e9d85a41ad4a",
    },
    Vector {
        key: "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        nonce: "112233440102030405060708",
        associated: "4a2cbfe300000002",
        plaintext: "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee000000000\
                    7002400020bf0000020405b40101040201020201",
        sealed: "ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763\
                 748a637985771d347f0545659f14e99def842d8eb335f4eecfdbf831824b4c49\
                 15956c96",
    },
    Vector {
        key: "00000000000000000000000000000000",
        nonce: "000000000000000000000000",
        associated: "0000000000000001",
        plaintext: "4500003c99c500008001cb7a40679318010101010800075c0200440061626364\
                    65666768696a6b6c6d6e6f707172737475767761626364656667686901020201",
        sealed: "4688daf2f973a392732909c331d56d60f694abaa414b5e7ff5fdcdfff5e9a284\
                 456476492719ffb64de7d9dca1e1d894bc3bd57873ed4d181d19d4d5c8c18af3\
                 f821d496eeb096e98ad2b69e4799c71d",
    },
    Vector {
        key: "3de09874b388e6491988d0c3607eae1f",
        nonce: "57690e434e280000a2fca1a3",
        associated: "42f67e3f1010101010101010",
        plaintext: "4500003c99c300008001cb7c40679318010101010800085c0200430061626364\
                    65666768696a6b6c6d6e6f707172737475767761626364656667686901020201",
        sealed: "fba2caa4853cf9f0f22cb10d86dd83b0fec75691cf1a04b00d1138ec9c357917\
                 65acbd8701ad79845bf9fe3fba487bc91755e6662b4c8d0d1f5e22739530320a\
                 e0d731cc978ecafaeae88f00e80d6e48",
    },
    Vector {
        key: "3de09874b388e6491988d0c3607eae1f",
        nonce: "57690e434e280000a2fca1a3",
        associated: "42f67e3f1010101010101010",
        plaintext: "4500001c42a200008001441f406793b6e00000020a00f5ff01020201",
        sealed: "fba2ca845e5df9f0f22c3e6e86dd831e1fc65792cd1af9130e1379ed369f071f\
                 35e034be95f112e4e7d05d35",
    },
    Vector {
        key: "abbccddef00112233445566778899aab",
        nonce: "decaf888cafedebaceface74",
        associated: "000001000000000000000001",
        plaintext: "4500004933ba00007f119106c3fb1d10c2b1d326c02831ce0035dd7b800302d5\
                    00004e20001e8c18d75b81dc91baa0476b91b924b280389d92c963bac046ec95\
                    9b6266c04722b14923010101",
        sealed: "18a6fd42f72cbf4ab2a2ea901f73d814e3e7f243d95412e1c349c1d2fbec168f\
                 9190feebaf2cb01984e65863965d7472b79da345e0e780191f0d2f0e0f496c22\
                 6f2127b27db35724e7845d68651f57e65f354f75ff17015769623436",
    },
    Vector {
        key: "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        nonce: "73616c74616e640169766563",
        associated: "17405e67156f3126dd0db99b",
        plaintext: "45080028732c00004006e9f90a0106120a01038f06b88023dd6bafbecb712602\
                    50101f646d540001",
        sealed: "f2d69ecdbd5a0d5b8d5ef38bad4da58d1f278fde98ef67549d524a3018d9a57f\
                 f4d3a31ce673119e451626c2415771e3b7eebca614c89b35",
    },
    Vector {
        key: "3de09874b388e6491988d0c3607eae1f",
        nonce: "57690e434e280000a2fca1a3",
        associated: "42f67e3f1010101010101010",
        plaintext: "45000049333e00007f119182c3fb1d10c2b1d326c02831ce0035cb458003025b\
                    000001e0001e8c18d65759d52284a0352c71475c8880391c764d6e5ee0496b32\
                    5ae270c03899493915010101",
        sealed: "fba2cad12fc1f9f00d3cebf305410db83d7784b607323d220f24b0a97d541828\
                 00cadb0f68d99ef0e0c0c89ae9bea8884e52d65bc1afd0740f742444747b5b39\
                 ab533163aad4550ee5160975cdb608c5769189609763b8e18caa81e2",
    },
    Vector {
        key: "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        nonce: "73616c74616e640169766563",
        associated: "17405e67156f3126dd0db99b",
        plaintext: "636973636f0172756c657301746865016e6574776501646566696e6501746865\
                    746563686e6f6c6f67696573017468617477696c6c01646566696e65746f6d6f\
                    72726f7701020201",
        sealed: "d4b7ed86a1777f2ea13d6973d324c69e7b43f826fb56831226508bebd2dceb18\
                 d0a6df10e5487df074113e14c641024e3e6773d91a62ee429b043a10e3efe6b0\
                 12a49363412364f8c0cac587f249e56b11e24f30e44ccc76",
    },
    Vector {
        key: "7d773d00c144c525ac619d18c84a3f47",
        nonce: "d966426743457e9182443bc6",
        associated: "335467aeffffffff",
        plaintext: "01020201",
        sealed: "437f866bcb3f699fe9b0822bac961c4504bef270",
    },
    Vector {
        key: "abbccddef00112233445566778899aab",
        nonce: "decaf888cafedebaceface74",
        associated: "000001000000000000000001",
        plaintext: "746f016265016f72016e6f7401746f0162650001",
        sealed: "29c9fc69a197d038ccdd14e2ddfcaa0543332164412503524303ed3c6c5f2838\
                 43af8c3e",
    },
    Vector {
        key: "6c6567616c697a656d6172696a75616e61616e64646f69746265666f72656961",
        nonce: "7475726e333021696765746d",
        associated: "796b6963ffffffffffffffff",
        plaintext: "45000030da3a00008001df3bc0a80005c0a800010800c6cd0200070061626364\
                    65666768696a6b6c6d6e6f707172737401020201",
        sealed: "f97ab2aa356d8edce17644ac8c78e25dd24dedbb29ebf1b64a274b39b49c3a86\
                 4cd3d78ca4ae68a32b42458fb57dbe821dcc63b9d0937ba2945f669368661a32\
                 9fb4c053",
    },
];
