/* Made by crates/ring from its layout; a test compares. docs/reference/ring.md says what it means. */

#define RING_MAGIC 1112688720u
#define RING_VERSION 4u
#define RING_PAGE 4096u
#define RING_DOWN 262144u
#define RING_UP 1179648u
#define RING_SIZE 1445888u
#define RING_AWAKE 0u
#define RING_FOR_BYTES 1u
#define RING_FOR_ROOM 2u
#define RING_AT_HEAD 0u
#define RING_AT_DOWN_PUT 64u
#define RING_AT_ROOM_WANTED 72u
#define RING_AT_ENOUGH_CALLS 76u
#define RING_AT_QUICK 80u
#define RING_AT_DOWN_TAKEN 128u
#define RING_AT_UP_PUT 192u
#define RING_AT_UP_TAKEN 256u
#define RING_AT_SLEEP 320u
#define RING_AT_OFFERED 384u
#define RING_AT_STACK 448u
#define RING_STACK 11u
#define RING_AT_TIMED 536u
#define RING_AT_PARKED 0u
#define RING_AT_PROCESSOR 4u
