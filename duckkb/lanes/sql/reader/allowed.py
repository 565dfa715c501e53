"""The allow-list of filters and statements. Everything else is refused.

Left out on purpose: functions that make long texts or lists from short ones (repeat, lpad, format, range), that
take more than linear time on a short text (levenshtein and similar), and that run or read other things (query,
getenv, read_text).
"""

from collections.abc import Mapping
from typing import Any


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


STATEMENTS_ALONE = {
    "SUBQUERY": "a subquery",
    "STAR": "a star",
    "WINDOW": "a window function",
    "POSITIONAL_REFERENCE": "a positional reference",
    "GROUPING_FUNCTION": "grouping()",
}
"""Expressions and operators only for statements: they do not concern a single record, which is all that a filter
sees.
"""

_TYPES = {
    "BOOLEAN": "bool logical",
    "TINYINT": "int1",
    "SMALLINT": "int2 int16 short",
    "INTEGER": "int int4 int32 integral signed",
    "BIGINT": "int8 int64 long oid",
    "HUGEINT": "int128",
    "UTINYINT": "uint8",
    "USMALLINT": "uint16",
    "UINTEGER": "uint32",
    "UBIGINT": "uint64",
    "FLOAT": "float4 real",
    "DOUBLE": "float8",
    "DECIMAL": "dec numeric",
    "VARCHAR": "bpchar char nvarchar string text",
    "DATE": "",
    "TIME": "",
    "TIMESTAMP": "datetime timestamp_us",
    "TIMESTAMP_S": "",
    "TIMESTAMP_MS": "",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "INTERVAL": "",
    "UUID": "guid",
    "JSON": "",
    "LIST": "",
    "ARRAY": "",
    "STRUCT": "row",
}
TYPES = {name.lower(): canonical for canonical, names in _TYPES.items() for name in (canonical, *names.split())}
"""The types that a CAST may name, by each of their names. Composed types contain these."""


SHOWN = _set("DESCRIBE SUMMARY")
"""What may be shown of a query: its columns, or statistics of them."""


def type_name(node: Mapping[str, Any]) -> str:
    """Return the only name of a type; empty if the type is not allowed."""
    return TYPES.get(str(node["type_name"]).lower(), "")


ESCAPED = _set("like_escape not_like_escape ilike_escape not_ilike_escape")
"""LIKE and its variants with ESCAPE, which the parser calls operators."""

OPERATORS = ESCAPED | _set("+ - * / // % ^ ** & | ~ << >> || -> ->> @> <@ && <=> ~~ !~~ ~~* !~~* ~~~")

TAKE_NAMES = _set("struct_pack unnest")
"""Functions whose arguments may have names; elsewhere a name could reorder the arguments."""

TEXTS = _set(
    """regexp_matches regexp_full_match regexp_extract regexp_extract_all regexp_replace regexp_split_to_array string_split
    string_split_regex str_split split split_part like_escape not_like_escape ilike_escape not_ilike_escape
    lower lcase upper ucase strlen char_length character_length starts_with ends_with prefix suffix trim ltrim rtrim
    substring substr left right strpos instr position concat concat_ws replace reverse translate ascii chr unicode
    md5 sha256 bit_length strip_accents nfc_normalize string_to_array strptime try_strptime
    overlay"""
)
"""Functions that take texts: a JSON value is passed as its text."""

NUMBERS = _set(
    """abs round floor ceil ceiling trunc sign sqrt cbrt ln log log2 log10 exp pow power mod fmod isnan isinf isfinite pi
    sin cos tan width_bucket even gcd lcm radians degrees atan atan2 acos asin sum avg mean median
    round_even roundbankers"""
)
"""Functions that take numbers: a JSON value is passed as its number."""

_VALUES = """length len contains array_to_string hash greatest least coalesce ifnull nullif if typeof row struct_pack
    struct_extract map"""
_TIMES = """now current_timestamp get_current_timestamp current_date today date make_date make_timestamp
    year quarter month week day dayofmonth hour minute second dayofweek isodow dayofyear dayname monthname last_day epoch
    epoch_ms epoch_us date_part datepart date_trunc datetrunc date_diff datediff date_sub datesub age strftime time_bucket to_years
    to_months to_weeks to_days to_hours to_minutes to_seconds yearweek weekofyear"""
_LISTS = """list_value list_pack list_contains array_contains list_has array_has list_has_any list_has_all array_has_any
    array_has_all array_length list_length list_extract list_element array_extract list_slice array_slice list_concat
    list_sort array_sort list_reverse_sort list_distinct list_unique list_position list_indexof list_aggregate list_sum
    list_avg list_min list_max list_count list_transform list_apply list_filter flatten unnest list_cosine_similarity
    list_cosine_distance list_inner_product list_dot_product list_distance list_negative_inner_product
    list_negative_dot_product array_cosine_similarity array_cosine_distance array_inner_product array_dot_product
    array_distance array_negative_inner_product array_negative_dot_product array_cross_product array_value array_concat
    array_cat list_cat array_append array_prepend array_push_back array_push_front list_append list_prepend
    array_pop_back array_pop_front list_first list_last list_reverse array_reverse array_reverse_sort list_grade_up
    array_grade_up array_distinct array_unique array_position array_indexof list_intersect array_intersect list_where
    array_where list_select array_select list_zip array_zip list_aggr array_aggr array_aggregate array_transform
    array_apply array_filter list_any_value list_approx_count_distinct list_bit_and list_bit_or list_bit_xor
    list_bool_and list_bool_or list_entropy list_histogram list_kurtosis list_kurtosis_pop list_mad list_median
    list_mode list_product list_sem list_skewness list_stddev_pop list_stddev_samp list_string_agg list_var_pop
    list_var_samp array_to_string_comma_default"""
_JSON = """json_extract json_extract_string json_extract_path json_extract_path_text json_array_length json_keys json_type
    json_valid json_exists json_contains json_value json_object json_array to_json json_quote json_structure
    array_to_json row_to_json json_merge_patch json json_set json_insert json_replace json_remove json_deep_merge
    json_merge_patch_diff json_strip_nulls json_normalize"""

AGGREGATES = _set(
    """count count_star sum avg mean min max median mode quantile quantile_cont quantile_disc approx_count_distinct stddev
    stddev_samp stddev_pop variance var_samp var_pop string_agg group_concat list array_agg first last any_value arg_min
    arg_max min_by max_by bool_and bool_or count_if countif product corr covar_pop covar_samp entropy kurtosis skewness
    histogram bit_and bit_or bit_xor fsum sum_no_overflow json_group_array json_group_object
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value"""
)
"""Functions of many rows, which filters do not support."""

REFUSED = {
    "list_resize": "makes a list of any length out of nothing",
    "array_resize": "makes a list of any length out of nothing",
    "list_reduce": "runs an expression whose value may double at each element",
    "array_reduce": "runs an expression whose value may double at each element",
    "json_pretty": "indents each level of nesting: a text becomes its square",
    "from_json": "reads a structure out of a text, a list of types that nobody has judged",
    "json_transform": "reads a structure out of a text, a list of types that nobody has judged",
    "json_transform_strict": "reads a structure out of a text, a list of types that nobody has judged",
    "json_serialize_sql": "parses statements",
    "json_deserialize_sql": "writes statements",
    "json_serialize_plan": "plans statements",
    "json_execute_serialized_sql": "runs statements",
    "json_copy_strftime_if_date": "is a part of COPY",
    "json_copy_strftime_if_timestamp": "is a part of COPY",
    "__internal_json_copy_to_json": "is a part of COPY",
}
"""DuckDB's functions of lists, arrays and JSON that are left out, and why."""

FUNCTIONS = TEXTS | NUMBERS | AGGREGATES | _set(" ".join((_VALUES, _TIMES, _LISTS, _JSON)))
