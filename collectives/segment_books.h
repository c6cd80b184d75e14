// What a rank shares with others of its host, for whoever keeps an account of memory.
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

// Of the communicators that come from one Connect. Thread-safe; the charger is called under its
// lock, and so is the end of what that returns.
class SegmentBooks : public std::enable_shared_from_this<SegmentBooks> {
 public:
  // Memory that is about to be made, until what is returned is destroyed. The charger's error.
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
  void Strike(uint64_t number);
  void StopCharging();

  std::mutex mutex_;
  SegmentCharger charger_;
  std::map<uint64_t, Entry> entries_;  // by the order in which they came
  uint64_t last_ = 0;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SEGMENT_BOOKS_H_
