#include "training/launch/host_frames.h"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "training/launch/sha256.h"

namespace geminid::trainer {
namespace {

constexpr size_t kHeaderBytes = 5;
constexpr size_t kWordBytes = 4;
constexpr size_t kMaxFrameBytes = 16 << 20;  // an environment and a command line have 6 MiB at most
constexpr char kOwnFile[] = "/proc/self/exe";

void PutWord(std::string* to, size_t word) {
  for (int shift = 0; shift < 32; shift += 8) to->push_back(static_cast<char>(word >> shift));
}

size_t GetWord(const std::string& from, size_t at) {
  size_t word = 0;
  for (size_t i = 0; i < kWordBytes; ++i) {
    word |= static_cast<size_t>(static_cast<unsigned char>(from[at + i])) << (8 * i);
  }
  return word;
}

absl::Status NotAFrame() {
  return absl::InvalidArgumentError("the bytes are not a frame of geminid-train");
}

}  // namespace

absl::StatusOr<ProgramVersion> OwnVersion() {
  std::ifstream file(kOwnFile, std::ios::binary);
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file.gcount() > 0) {
    hash.Add(std::as_bytes(std::span(buffer).first(static_cast<size_t>(file.gcount()))));
  }
  if (file.bad() || !file.eof()) {
    return absl::UnavailableError(absl::StrCat("cannot read the program itself, ", kOwnFile));
  }
  return ProgramVersion{.version = GEMINID_VERSION, .build = hash.Finish()};
}

std::string GreetingOf(const ProgramVersion& version) {
  return absl::StrCat(kHostGreeting, " ", version.version, " ", version.build, "\n");
}

std::optional<ProgramVersion> ParseGreeting(const std::string& line) {
  if (!absl::StartsWith(line, absl::StrCat(kHostGreeting, " "))) return std::nullopt;
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words.size() != 4) return std::nullopt;
  return ProgramVersion{.version = words[2], .build = words[3]};
}

std::string Encode(const HostFrame& frame) {
  std::string body;
  for (const std::string& field : frame.fields) {
    PutWord(&body, field.size());
    body += field;
  }
  std::string bytes(1, static_cast<char>(frame.type));
  PutWord(&bytes, body.size());
  return bytes + body;
}

absl::StatusOr<std::optional<HostFrame>> HostFrameReader::Next() {
  if (buffer_.size() < kHeaderBytes) return std::optional<HostFrame>();
  const auto type = static_cast<uint8_t>(buffer_[0]);
  const size_t length = GetWord(buffer_, 1);
  if (type < static_cast<uint8_t>(HostFrameType::kPrepare) ||
      type > static_cast<uint8_t>(HostFrameType::kBeat) || length > kMaxFrameBytes) {
    return NotAFrame();
  }
  const size_t end = kHeaderBytes + length;
  if (buffer_.size() < end) return std::optional<HostFrame>();
  HostFrame frame{.type = static_cast<HostFrameType>(type)};
  for (size_t at = kHeaderBytes; at < end;) {
    if (end - at < kWordBytes) return NotAFrame();
    const size_t bytes = GetWord(buffer_, at);
    at += kWordBytes;
    if (end - at < bytes) return NotAFrame();
    frame.fields.push_back(buffer_.substr(at, bytes));
    at += bytes;
  }
  buffer_.erase(0, end);
  return std::optional<HostFrame>(std::move(frame));
}

absl::StatusOr<std::string> FieldReader::Text() {
  if (next_ >= fields_.size()) return NotAFrame();
  return fields_[next_++];
}

absl::StatusOr<int> FieldReader::Number() {
  GEMINID_ASSIGN_OR_RETURN(const std::string text, Text());
  int number = 0;
  if (!absl::SimpleAtoi(text, &number)) return NotAFrame();
  return number;
}

absl::StatusOr<uint64_t> FieldReader::Count() {
  GEMINID_ASSIGN_OR_RETURN(const std::string text, Text());
  uint64_t count = 0;
  if (!absl::SimpleAtoi(text, &count)) return NotAFrame();
  return count;
}

absl::StatusOr<std::vector<std::string>> FieldReader::List() {
  GEMINID_ASSIGN_OR_RETURN(const int count, Number());
  std::vector<std::string> list;
  for (int i = 0; i < count; ++i) {
    GEMINID_ASSIGN_OR_RETURN(std::string text, Text());
    list.push_back(std::move(text));
  }
  return list;
}

std::vector<std::string> FieldReader::Rest() {
  std::vector<std::string> rest(fields_.begin() + static_cast<std::ptrdiff_t>(next_),
                                fields_.end());
  next_ = fields_.size();
  return rest;
}

void AppendList(const std::vector<std::string>& list, HostFrame* frame) {
  frame->fields.push_back(absl::StrCat(list.size()));
  frame->fields.insert(frame->fields.end(), list.begin(), list.end());
}

std::vector<std::string> TextsOf(const std::optional<Handover>& handover, absl::Time now) {
  if (!handover.has_value()) return {};
  const absl::Duration ago = std::max(absl::ZeroDuration(), now - handover->began);
  return {absl::StrCat(handover->number),
          absl::StrCat(handover->request),
          absl::StrCat(handover->ranks_before),
          absl::StrCat(handover->ranks_after),
          absl::StrCat(handover->step),
          absl::StrCat(handover->bytes),
          absl::StrCat(absl::ToInt64Nanoseconds(ago)),
          handover->host,
          handover->words,
          handover->followed ? "followed" : ""};
}

absl::StatusOr<std::optional<Handover>> HandoverFrom(const std::vector<std::string>& texts,
                                                     absl::Time now) {
  if (texts.empty()) return std::optional<Handover>();
  FieldReader fields(texts);
  Handover handover;
  GEMINID_ASSIGN_OR_RETURN(handover.number, fields.Count());
  GEMINID_ASSIGN_OR_RETURN(handover.request, fields.Count());
  GEMINID_ASSIGN_OR_RETURN(handover.ranks_before, fields.Number());
  GEMINID_ASSIGN_OR_RETURN(handover.ranks_after, fields.Number());
  GEMINID_ASSIGN_OR_RETURN(handover.step, fields.Count());
  GEMINID_ASSIGN_OR_RETURN(handover.bytes, fields.Count());
  GEMINID_ASSIGN_OR_RETURN(const uint64_t ago, fields.Count());
  handover.began = now - absl::Nanoseconds(ago);
  GEMINID_ASSIGN_OR_RETURN(handover.host, fields.Text());
  GEMINID_ASSIGN_OR_RETURN(handover.words, fields.Text());
  GEMINID_ASSIGN_OR_RETURN(const std::string followed, fields.Text());
  handover.followed = !followed.empty();
  return std::optional<Handover>(std::move(handover));
}

std::vector<std::string> TextsOf(const std::optional<MoveRequest>& move) {
  if (!move.has_value()) return {};
  return {absl::StrCat(move->request),
          move->host,
          absl::StrCat(move->ranks),
          absl::StrCat(move->state_bytes),
          absl::StrCat(move->rank_device_bytes),
          absl::StrCat(move->host_bytes),
          move->data};
}

absl::StatusOr<std::optional<MoveRequest>> MoveFrom(const std::vector<std::string>& texts) {
  if (texts.empty()) return std::optional<MoveRequest>();
  FieldReader fields(texts);
  MoveRequest move;
  GEMINID_ASSIGN_OR_RETURN(move.request, fields.Count());
  GEMINID_ASSIGN_OR_RETURN(move.host, fields.Text());
  GEMINID_ASSIGN_OR_RETURN(move.ranks, fields.Number());
  GEMINID_ASSIGN_OR_RETURN(move.state_bytes, fields.Count());
  GEMINID_ASSIGN_OR_RETURN(move.rank_device_bytes, fields.Count());
  GEMINID_ASSIGN_OR_RETURN(move.host_bytes, fields.Count());
  GEMINID_ASSIGN_OR_RETURN(move.data, fields.Text());
  return std::optional<MoveRequest>(std::move(move));
}

}  // namespace geminid::trainer
