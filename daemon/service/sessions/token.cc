#include "daemon/service/sessions/token.h"

#include <sys/random.h>

#include "base/system_error.h"

namespace geminid::service {
namespace {

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

absl::StatusOr<Token> NewToken() {
  Token token;
  // Requests of at most 256 bytes are never cut short once the kernel's pool is ready.
  const ssize_t got =
      base::RetryOnEintr([&] { return ::getrandom(token.data(), token.size(), 0); });
  if (got != static_cast<ssize_t>(token.size())) {
    return base::SystemError(errno, "getrandom", "a session token");
  }
  return token;
}

bool ConstantTimeEqual(const Token& a, const Token& b) {
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = difference | (a[i] ^ b[i]);
  return difference == 0;
}

bool FromHex(const std::string& text, Token* token) {
  if (text.size() != 2 * token->size()) return false;
  for (size_t i = 0; i < token->size(); ++i) {
    const int high = DigitValue(text[2 * i]);
    const int low = DigitValue(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    (*token)[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

}  // namespace geminid::service
