// A daemon's hub and a session in it, for targets that drive what a client can.
#ifndef GEMINID_TESTS_FUZZ_FUZZ_HUB_H_
#define GEMINID_TESTS_FUZZ_FUZZ_HUB_H_

#include <cstdint>
#include <memory>

#include "base/unique_fd.h"
#include "daemon/service/sessions/session_hub.h"

namespace geminid::fuzz {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

// With a sparse host device of 64 MiB, `limits` and a host capacity; the rest as `options` says.
std::unique_ptr<service::SessionHub> MakeHub(service::SessionHubOptions options,
                                             service::Limits* limits, uint64_t host_bytes);

// Nothing is allocated in it. `client`: its end of the attach socket.
service::SessionPtr OpenSession(service::SessionHub* hub, base::UniqueFd* client);

}  // namespace geminid::fuzz

#endif  // GEMINID_TESTS_FUZZ_FUZZ_HUB_H_
