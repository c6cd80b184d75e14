// The SHA-256 digest of bytes, given in any number of pieces.
#ifndef GEMINID_TRAINING_LAUNCH_SHA256_H_
#define GEMINID_TRAINING_LAUNCH_SHA256_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace geminid::trainer {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Add(std::span<const std::byte> bytes);
  // 64 lower-case hexadecimal digits; call it last, and once.
  std::string Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_SHA256_H_
