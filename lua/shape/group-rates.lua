local as_text = use 'redis/as-text'

-- The rates and bursts that the defaults of groups have had: a group that starts no job meanwhile counts the time under
-- each of them later. As stored: JSON, a list of {since when (µs), rate or false, burst or false}, in order. The first
-- one applied since 0, unless there were more changes.
local group_rates = { MOST = 8 }

-- groups: JSON, or false
local function rate_of(groups)
  local given = groups and cjson.decode(groups) or {}
  return { given.rate or false, given.burst or false }
end

-- The list once groups (JSON, or nil) have changed at a time. known: the list until then, or false; before: the groups
-- until then. Nil or false if there were no other rates.
function group_rates.changed(known, before, groups, at)
  local old, new = rate_of(before), rate_of(groups)
  if cjson.encode(old) == cjson.encode(new) then return known end
  local rates = known and cjson.decode(known) or { { '0', unpack(old) } }
  rates[#rates + 1] = { as_text.us(at), unpack(new) }
  if #rates > group_rates.MOST then table.remove(rates, 1) end
  return cjson.encode(rates)
end

function group_rates.decode(text)
  local rates = {}
  for i, one in ipairs(cjson.decode(text)) do
    rates[i] = { at = tonumber(one[1]), rate = one[2] or nil, burst = one[3] or nil }
  end
  return rates
end

return group_rates
