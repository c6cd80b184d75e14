#ifndef GEMINID_DAEMON_PLANNER_PROBLEM_ENUM_SET_H_
#define GEMINID_DAEMON_PLANNER_PROBLEM_ENUM_SET_H_

#include <bitset>
#include <cstddef>

namespace geminid::planner {

// A set of values of an enum that are below `kCount`.
template <typename Enum, std::size_t kCount>
class EnumSet {
 public:
  EnumSet() = default;
  explicit EnumSet(Enum only) { bits_.set(static_cast<std::size_t>(only)); }
  EnumSet With(Enum value) const {
    EnumSet set = *this;
    set.bits_.set(static_cast<std::size_t>(value));
    return set;
  }
  bool Has(Enum value) const { return bits_.test(static_cast<std::size_t>(value)); }

 private:
  std::bitset<kCount> bits_;
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PROBLEM_ENUM_SET_H_
