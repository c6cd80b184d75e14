#ifndef GEMINID_KERNELS_CRC32C_CRC32C_H_
#define GEMINID_KERNELS_CRC32C_CRC32C_H_

#include <cstddef>
#include <cstdint>

// CRC32C (Castagnoli): polynomial 0x1EDC6F41 reflected, initial value and final xor 0xFFFFFFFF, as
// iSCSI defines it (RFC 3720, 12.1 and B.4). Uses the SSE4.2 instruction in three interleaved
// streams where the processor has it, else tables. Any alignment, any thread, never blocks.
namespace geminid::kernels {

// The CRC of the concatenation of the bytes that gave `crc` and these. ExtendCrc32c(0, ...) is the
// CRC of these alone. `data` may be null if `bytes` is 0.
uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t bytes);

inline uint32_t Crc32c(const void* data, size_t bytes) { return ExtendCrc32c(0, data, bytes); }

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_CRC32C_CRC32C_H_
