// Measures a link's speed: bytes over the time in which any transfer was on the link. Pure.
#ifndef GEMINID_CLIENT_ZERO_CORE_LINK_METER_H_
#define GEMINID_CLIENT_ZERO_CORE_LINK_METER_H_

#include <cstdint>

#include "absl/time/time.h"

namespace geminid::zero {

class LinkMeter {
 public:
  // Transfers may overlap; time that several share counts once.
  void Begin(absl::Time now) {
    if (transfers_++ == 0) busy_since_ = now;
  }
  void End(absl::Time now, uint64_t bytes) {
    bytes_ += bytes;
    if (--transfers_ == 0) busy_ += now - busy_since_;
  }

  // 0 until a transfer has ended.
  double BytesPerSecond() const {
    const double seconds = absl::ToDoubleSeconds(busy_);
    return seconds > 0 ? static_cast<double>(bytes_) / seconds : 0;
  }

 private:
  uint32_t transfers_ = 0;  // in progress
  absl::Time busy_since_;
  absl::Duration busy_;
  uint64_t bytes_ = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_LINK_METER_H_
