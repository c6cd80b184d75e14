// Compares our own declarations of a library's types and calls with those of its header.
#ifndef GEMINID_TESTS_GPU_SAME_DECLARATIONS_H_
#define GEMINID_TESTS_GPU_SAME_DECLARATIONS_H_

#include <type_traits>

namespace geminid::gpu {

// Whether two parameters match: both are pointers, or both are values of one size.
template <typename Theirs, typename Ours>
constexpr bool kAlike =
    sizeof(Theirs) == sizeof(Ours) && std::is_pointer_v<Theirs> == std::is_pointer_v<Ours>;

// Whether two pointers to functions match, which return the library's status and ours.
template <typename TheirStatus, typename OurStatus, typename Theirs, typename Ours>
constexpr bool kSameCall = false;
template <typename TheirStatus, typename OurStatus, typename... Theirs, typename... Ours>
constexpr bool
    kSameCall<TheirStatus, OurStatus, TheirStatus (*)(Theirs...), OurStatus (*)(Ours...)> = [] {
      if constexpr (sizeof...(Theirs) != sizeof...(Ours)) {
        return false;
      } else {
        return (kAlike<Theirs, Ours> && ...);
      }
    }();

#define SAME_VALUE(theirs, ours) static_assert(static_cast<int>(theirs) == static_cast<int>(ours))

}  // namespace geminid::gpu

#endif  // GEMINID_TESTS_GPU_SAME_DECLARATIONS_H_
