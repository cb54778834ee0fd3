//! Which partition a key belongs to: as Kafka's default partitioner has it, so that both logs
//! agree on the place of a key.

const SEED: u32 = 0x9747_b28c;
const SIGN: u32 = 1 << 31;

/// The partition of `key` among `partitions`: murmur2 with Kafka's seed, its sign bit cleared,
/// modulo. 0 when there are no partitions.
pub fn partition_for_key(key: &[u8], partitions: u32) -> u32 {
    (murmur2::murmur2(key, SEED) & !SIGN)
        .checked_rem(partitions)
        .unwrap_or(0)
}

/// The hash of `key` that its partition is chosen by, as Kafka has it.
pub fn key_hash(key: &[u8]) -> i32 {
    murmur2::murmur2(key, SEED).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `org.apache.kafka.common.utils.Utils.murmur2` gives, as its own tests state.
    const VECTORS: [(&[u8], i32); 6] = [
        (b"21", -973_932_308),
        (b"foobar", -790_332_482),
        (b"a-little-bit-long-string", -985_981_536),
        (b"a-little-bit-longer-string", -1_486_304_829),
        (
            b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
            -58_897_971,
        ),
        (b"abc", 479_470_107),
    ];

    #[test]
    fn the_hash_is_the_one_of_kafka() {
        for (key, hash) in VECTORS {
            assert_eq!(key_hash(key), hash);
        }
    }

    #[test]
    fn the_partition_is_the_positive_hash_modulo_their_number() {
        for (key, hash) in VECTORS {
            let positive = u32::try_from(hash & i32::MAX).unwrap();
            for partitions in [1, 2, 3, 7, 12, 1000, 10_000] {
                assert_eq!(partition_for_key(key, partitions), positive % partitions);
            }
        }
    }

    #[test]
    fn without_partitions_the_answer_is_zero() {
        assert_eq!(partition_for_key(b"key", 0), 0);
    }
}
