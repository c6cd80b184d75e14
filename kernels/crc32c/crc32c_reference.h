#ifndef GEMINID_KERNELS_CRC32C_CRC32C_REFERENCE_H_
#define GEMINID_KERNELS_CRC32C_CRC32C_REFERENCE_H_

#include <cstddef>
#include <cstdint>

namespace geminid::kernels::reference {

// As kernels::ExtendCrc32c, by tables (slicing by 8), on any processor: the fallback.
uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t bytes);

}  // namespace geminid::kernels::reference

#endif  // GEMINID_KERNELS_CRC32C_CRC32C_REFERENCE_H_
