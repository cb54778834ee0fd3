//! Every maximum of the store in one place.

/// Largest record batch as stored, header included: 16 MiB and room for the batch's own framing.
pub const BATCH_BYTES_MAX: u32 = 17 * 1024 * 1024;
/// Most records in one batch.
pub const BATCH_RECORDS_MAX: u32 = 10_000;
/// Largest segment: 1 GiB. A batch that begins below it may end beyond.
pub const SEGMENT_BYTES_MAX: u32 = 1 << 30;
/// Smallest segment: 1 MiB.
pub const SEGMENT_BYTES_MIN: u32 = 1 << 20;
/// Segment size of a topic that names none: 128 MiB.
pub const SEGMENT_BYTES_DEFAULT: u32 = 128 << 20;
/// Bytes of log between two index entries.
pub const INDEX_INTERVAL_BYTES: u32 = 4096;
/// Smallest and first size of an index file; it grows by doubling.
pub const INDEX_FILE_BYTES_MIN: u32 = 16 * 1024;
/// Most segments of a partition.
pub const SEGMENTS_MAX: u32 = 1 << 20;
/// Most epochs that a partition remembers; the oldest are forgotten beyond it.
pub const EPOCHS_MAX: u32 = 4096;
/// Largest index file.
pub const INDEX_FILE_BYTES_MAX: u32 = 64 << 20;
/// Most bytes of log that one call reads, unless a single batch is larger.
pub const READ_CHUNK_BYTES: u32 = 4 << 20;
/// Most bytes of bodies that a flush writes in one call, unless a single batch is larger.
pub const WRITE_RUN_BYTES: u64 = 1 << 20;
/// Most batches that a flush writes in one call.
pub const WRITE_RUN_BATCHES: usize = 1024;
/// Size of a WAL file unless set: 64 MiB.
pub const WAL_FILE_BYTES_DEFAULT: u64 = 64 << 20;
/// Smallest WAL file.
pub const WAL_FILE_BYTES_MIN: u64 = 1 << 20;
/// Largest WAL file.
pub const WAL_FILE_BYTES_MAX: u64 = 1 << 30;
/// Largest WAL frame: a request of the largest size and its command.
pub const WAL_FRAME_BYTES_MAX: u32 = 64 << 20;
/// Most bulk payloads (record batches) in one WAL frame.
pub const WAL_FRAME_BULKS_MAX: u32 = 16_384;
/// Files of the WAL that are no longer needed are kept to be used again up to so many bytes.
pub const WAL_SPARE_BYTES_MAX: u64 = 256 << 20;
/// And no more files than these.
pub const WAL_SPARE_FILES_MAX: u64 = 16;
/// Most bytes that are saved of a tail that a start cuts off.
pub const WAL_TORN_BYTES_MAX: u64 = 1 << 20;
/// Most saved tails; the oldest goes first.
pub const WAL_TORN_FILES_MAX: usize = 4;
/// Flush of a partition's tail once it holds so many bytes.
pub const FLUSH_BYTES: u32 = 256 * 1024;
/// Files and folders that a checkpoint syncs one by one at most, where the whole file system can be
/// synced instead: that costs about as much as a few of them, and what others have written besides.
pub const SYNC_EACH_MAX: usize = 16;
/// Largest snapshot of the durable state in a checkpoint.
pub const SNAPSHOT_BYTES_MAX: u64 = 4 << 30;
/// Largest checkpoint: the snapshot and the manifests.
pub const CHECKPOINT_BYTES_MAX: u64 = 6 << 30;
/// Most partitions in a checkpoint.
pub const CHECKPOINT_PARTITIONS_MAX: u32 = 1 << 20;

const _: () = {
    assert!(SEGMENT_BYTES_MIN <= SEGMENT_BYTES_DEFAULT);
    assert!(SEGMENT_BYTES_DEFAULT <= SEGMENT_BYTES_MAX);
    assert!(SEGMENT_BYTES_MAX as u64 + BATCH_BYTES_MAX as u64 <= u32::MAX as u64);
    assert!(WAL_FILE_BYTES_MIN <= WAL_FILE_BYTES_DEFAULT);
    assert!(WAL_FILE_BYTES_MAX + WAL_FRAME_BYTES_MAX as u64 <= u32::MAX as u64);
    assert!(INDEX_FILE_BYTES_MIN.is_power_of_two());
};
