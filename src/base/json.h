// Reads JSON (RFC 8259): files that the command line tools write.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace starling {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the order of the text

  // Throws Error(invalid_argument) that names `source` and the line. Nests at most 64 deep.
  static Json parse(std::string_view text, const std::string& source);

  // Null: it is something else; of an object: it has no such member.
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const double* number() const { return std::get_if<double>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Json* member(std::string_view name) const;

 private:
  friend class JsonReader;
  std::variant<std::nullptr_t, bool, double, std::string, Array, Object> value_ = nullptr;
};

}  // namespace starling
