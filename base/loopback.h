// Recognizes names and addresses by which a host means itself.
#ifndef GEMINID_BASE_LOOPBACK_H_
#define GEMINID_BASE_LOOPBACK_H_

#include <string_view>

namespace geminid::base {

// "localhost", "127.x.y.z" or "::1"; without a name lookup.
inline bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace geminid::base

#endif  // GEMINID_BASE_LOOPBACK_H_
