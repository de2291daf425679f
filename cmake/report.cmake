# Embeds the page of reports in the programs: report_page_html, report_page_css and report_page_js.
set(report_page ${PROJECT_SOURCE_DIR}/tools/report/page)
set(report_scripts data layout picture details table page) # in the order of their text in the page
list(TRANSFORM report_scripts REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/tools/report/\\1.js")
set(source "/* Generated from tools/report/. */\nextern const char report_page_embedded[];
const char report_page_embedded[] = \"yes\";\n")
embed(source report_page_html ${report_page}.html)
embed(source report_page_css ${report_page}.css)
embed(source report_page_js ${report_scripts})
file(CONFIGURE OUTPUT ${generated}/tools/report_page.c CONTENT "${source}" @ONLY)
list(APPEND tool_sources ${generated}/tools/report_page.c)
set_source_files_properties(${generated}/tools/report_page.c
                            PROPERTIES OBJECT_DEPENDS "${report_page}.html;${report_page}.css;${report_scripts}")
