#include "training/launch/sha256.h"

#include <openssl/evp.h>

#include <new>

#include "absl/strings/escaping.h"

namespace geminid::trainer {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() {
    // OpenSSL fails here and below only if memory is exhausted.
    if (context == nullptr || EVP_DigestInit_ex(context, EVP_sha256(), nullptr) != 1) {
      throw std::bad_alloc();
    }
  }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Add(std::span<const std::byte> bytes) {
  if (EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) != 1) throw std::bad_alloc();
}

std::string Sha256::Finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  if (EVP_DigestFinal_ex(state_->context, digest, &bytes) != 1) throw std::bad_alloc();
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), bytes});
}

}  // namespace geminid::trainer
