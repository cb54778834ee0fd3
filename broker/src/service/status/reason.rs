//! Every reason, and its code.

use tonic::Code;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal, $code:ident;)+) => {
        /// Why a call was refused: the `reason` of `google.rpc.ErrorInfo`. Each has one code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// As in `ErrorInfo`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The gRPC status code.
            pub const fn code(self) -> Code {
                match self { $(Self::$variant => Code::$code,)+ }
            }
        }
    };
}

reasons! {
    /// Bytes that do not decode.
    MalformedRequest = "MALFORMED_REQUEST", InvalidArgument;
    /// A field out of its bounds, where no other reason fits.
    InvalidField = "INVALID_FIELD", InvalidArgument;
    /// A record over its topic's limit.
    RecordTooLarge = "RECORD_TOO_LARGE", InvalidArgument;
    /// A header name that is the broker's.
    ReservedHeader = "RESERVED_HEADER", InvalidArgument;
    /// A record batch that is none, or holds what it must not.
    BatchInvalid = "BATCH_INVALID", InvalidArgument;
    /// The same request id with other content.
    RequestIdReused = "REQUEST_ID_REUSED", InvalidArgument;
    /// An ack token that does not decode.
    AckTokenInvalid = "ACK_TOKEN_INVALID", InvalidArgument;
    /// No such topic.
    TopicNotFound = "TOPIC_NOT_FOUND", NotFound;
    /// No such group.
    GroupNotFound = "GROUP_NOT_FOUND", NotFound;
    /// No such dead-letter topic.
    QueueNotFound = "QUEUE_NOT_FOUND", NotFound;
    /// No such replay job, or it is no longer listed.
    JobNotFound = "JOB_NOT_FOUND", NotFound;
    /// No such partition.
    PartitionNotFound = "PARTITION_NOT_FOUND", NotFound;
    /// The topic's name is taken.
    TopicExists = "TOPIC_EXISTS", AlreadyExists;
    /// The group's name is taken.
    GroupExists = "GROUP_EXISTS", AlreadyExists;
    /// Outside the log.
    OffsetOutOfRange = "OFFSET_OUT_OF_RANGE", OutOfRange;
    /// The log was cut below what the reader has read.
    OffsetTruncated = "OFFSET_TRUNCATED", OutOfRange;
    /// A retry or dead-letter topic, which is changed only through its group.
    DerivedTopic = "DERIVED_TOPIC", FailedPrecondition;
    /// A producer left out a sequence.
    SequenceGap = "SEQUENCE_GAP", FailedPrecondition;
    /// A duplicate too old to be recognised.
    SequenceTooOld = "SEQUENCE_TOO_OLD", FailedPrecondition;
    /// A producer id that is not known.
    ProducerUnknown = "PRODUCER_UNKNOWN", FailedPrecondition;
    /// A commit below what is committed.
    OffsetMovesBack = "OFFSET_MOVES_BACK", FailedPrecondition;
    /// A group with live members or leases.
    GroupNotEmpty = "GROUP_NOT_EMPTY", FailedPrecondition;
    /// A call that groups of this mode do not have.
    GroupMode = "GROUP_MODE", FailedPrecondition;
    /// A dead-letter topic that still holds records.
    DeadLettersNotEmpty = "DEAD_LETTERS_NOT_EMPTY", FailedPrecondition;
    /// A discard without a plan.
    PlanRequired = "PLAN_REQUIRED", FailedPrecondition;
    /// A plan that is old, used or unknown.
    PlanExpired = "PLAN_EXPIRED", FailedPrecondition;
    /// A replay into a group that holds order.
    WouldReorder = "WOULD_REORDER", FailedPrecondition;
    /// A replay job that has ended.
    JobEnded = "JOB_ENDED", FailedPrecondition;
    /// A record of the lease was lost.
    LeaseLost = "LEASE_LOST", Aborted;
    /// A later epoch of the producer is at work.
    ProducerFenced = "PRODUCER_FENCED", Aborted;
    /// A second stream of the member, or an old generation.
    MemberFenced = "MEMBER_FENCED", Aborted;
    /// Larger than a request may be.
    RequestTooLarge = "REQUEST_TOO_LARGE", ResourceExhausted;
    /// A group has too many records that are not done.
    BackpressureDepth = "BACKPRESSURE_DEPTH", ResourceExhausted;
    /// Its oldest record that is not done is too old.
    BackpressureAge = "BACKPRESSURE_AGE", ResourceExhausted;
    /// Its records that are not done take too many bytes.
    BackpressureBytes = "BACKPRESSURE_BYTES", ResourceExhausted;
    /// The disk reserve is reached.
    BackpressureDisk = "BACKPRESSURE_DISK", ResourceExhausted;
    /// The broker's bounded queues and buffers stayed full.
    BrokerBusy = "BROKER_BUSY", ResourceExhausted;
    /// A count of things is at its limit.
    QuotaExceeded = "QUOTA_EXCEEDED", ResourceExhausted;
    /// Recovery is not done.
    BrokerStarting = "BROKER_STARTING", Unavailable;
    /// The broker is stopping.
    BrokerDraining = "BROKER_DRAINING", Unavailable;
    /// A sync failed; the outcome is unknown.
    BrokerFenced = "BROKER_FENCED", Unavailable;
    /// A quarantined range.
    SegmentCorrupt = "SEGMENT_CORRUPT", DataLoss;
    /// In the contract, not in this release.
    NotImplemented = "NOT_IMPLEMENTED", Unimplemented;
}
