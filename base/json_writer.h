// Writes indented JSON in the order of the calls. Bytes that are not UTF-8 become U+FFFD.
#ifndef GEMINID_BASE_JSON_WRITER_H_
#define GEMINID_BASE_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace geminid::base {

// Begin and End calls must pair. In an object every value needs a Key before it.
class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  JsonWriter& Key(const std::string& key);
  JsonWriter& Value(const std::string& value);
  JsonWriter& Value(const char* value) { return Value(std::string(value)); }
  JsonWriter& Value(bool value);
  JsonWriter& Value(uint64_t value);
  // Enough digits to read the same double back; null for infinity and NaN, which JSON lacks.
  JsonWriter& Value(double value);
  // The same, but whole numbers get a point or an exponent, for readers that distinguish them.
  JsonWriter& Real(double value);
  JsonWriter& Null();

  const std::string& text() const { return text_; }

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  void BeforeValue();
  void NewLine();

  std::string text_;
  std::vector<bool> empty_;  // of each open object or array
  bool after_key_ = false;
};

}  // namespace geminid::base

#endif  // GEMINID_BASE_JSON_WRITER_H_
