// The secret that makes a gRPC call one of a session: 256 random bits, sent once over the attach
// socket.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_TOKEN_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_TOKEN_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/shm/attach_messages.h"

namespace geminid::service {

using Token = std::array<uint8_t, shm::kTokenBytes>;

// From getrandom(2).
absl::StatusOr<Token> NewToken();

// Takes the same time wherever the tokens differ.
bool ConstantTimeEqual(const Token& a, const Token& b);

// Parses hexadecimal digits, as in the metadata; false for any other text.
bool FromHex(const std::string& text, Token* token);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_TOKEN_H_
