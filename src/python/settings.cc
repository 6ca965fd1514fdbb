#include "base/env.h"

#include "python/bindings.h"

namespace nb = nanobind;

namespace starling::python {

nb::list settings_rows() {
  nb::list rows;
  for (const SettingRow& row : settings_table()) {
    nb::dict fields;
    auto text = [](std::string_view view) { return nb::str(view.data(), view.size()); };
    fields["name"] = text(row.name);
    fields["type"] = text(row.type);
    fields["default"] = text(row.default_text);
    fields["help"] = text(row.help);
    rows.append(fields);
  }
  return rows;
}

}  // namespace starling::python

void bind_settings(nb::module_& m) {
  m.def("settings_table", &starling::python::settings_rows, "The settings that the environment gives.");
}
