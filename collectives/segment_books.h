// Records the memory that a rank shares with other ranks of its host, for accounting.
#ifndef GEMINID_COLLECTIVES_SEGMENT_BOOKS_H_
#define GEMINID_COLLECTIVES_SEGMENT_BOOKS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// Shared by the communicators of one Connect. Thread-safe. Charges begin and end under its
// lock.
class SegmentBooks : public std::enable_shared_from_this<SegmentBooks> {
 public:
  // Call before allocating memory; the result represents it. Errors are those of the charger.
  absl::StatusOr<std::shared_ptr<void>> Enter(const std::string& name, uint64_t bytes);

  // See Communicator::ChargeSegments.
  absl::StatusOr<std::shared_ptr<void>> ChargeBy(SegmentCharger charger);

 private:
  struct Entry {
    std::string name;
    uint64_t bytes = 0;
    std::shared_ptr<void> charge;
  };

  absl::Status Charge(Entry& entry);
  void Remove(uint64_t number);
  void StopCharging();

  std::mutex mutex_;
  SegmentCharger charger_;
  std::map<uint64_t, Entry> entries_;  // in the order of Enter
  uint64_t last_ = 0;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SEGMENT_BOOKS_H_
