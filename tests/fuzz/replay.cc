// replay FOLDER SECONDS: gives a target every file of the folder, then mutations of them for so
// long, the same ones each time. A fuzzer for compilers that have none; tools/fuzz has the real
// one.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace geminid::fuzz {
namespace {

using Input = std::vector<uint8_t>;

constexpr size_t kMostBytes = 4096;

std::vector<Input> ReadCorpus(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Input> inputs;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<Input>& corpus) : corpus_(corpus) {}

  Input Next() {
    Input input = corpus_[Below(corpus_.size())];
    for (uint64_t i = 1 + Below(8); i > 0; --i) Change(&input);
    if (input.size() > kMostBytes) input.resize(kMostBytes);
    return input;
  }

 private:
  uint64_t Below(uint64_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void Change(Input* input) {
    const size_t at = Below(input->size() + 1);
    const size_t bytes = Below(std::min<size_t>(input->size() - at, 64) + 1);
    const auto place = input->begin() + static_cast<std::ptrdiff_t>(at);
    switch (Below(6)) {
      case 0:
        if (at < input->size()) (*input)[at] ^= static_cast<uint8_t>(1u << Below(8));
        break;
      case 1: {
        static constexpr uint8_t kOdd[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', ','};
        if (at < input->size()) (*input)[at] = kOdd[Below(std::size(kOdd))];
        break;
      }
      case 2:
        input->erase(place, place + static_cast<std::ptrdiff_t>(bytes));
        break;
      case 3: {
        const Input copy(place, place + static_cast<std::ptrdiff_t>(bytes));
        input->insert(place, copy.begin(), copy.end());
        break;
      }
      case 4:
        for (size_t i = 0; i < bytes; ++i) (*input)[at + i] = static_cast<uint8_t>(random_());
        break;
      default: {
        const Input& other = corpus_[Below(corpus_.size())];
        input->resize(at);
        const auto from = other.begin() + static_cast<std::ptrdiff_t>(Below(other.size() + 1));
        input->insert(input->end(), from, other.end());
      }
    }
  }

  const std::vector<Input>& corpus_;
  std::mt19937_64 random_{1};
};

int Main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: " << argv[0] << " FOLDER SECONDS\n";
    return 64;
  }
  std::vector<Input> corpus = ReadCorpus(argv[1]);
  if (corpus.empty()) {
    std::cerr << argv[1] << " is empty\n";
    return 78;
  }
  for (const Input& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
  Mutator mutator(corpus);
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration<double>(std::strtod(argv[2], nullptr));
  uint64_t runs = corpus.size();
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    const Input input = mutator.Next();
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::cout << runs << " inputs, " << corpus.size() << " of them from the corpus: no complaint\n";
  return 0;
}

}  // namespace
}  // namespace geminid::fuzz

int main(int argc, char** argv) { return geminid::fuzz::Main(argc, argv); }
