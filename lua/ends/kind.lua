-- The parsed kinds of ends, the last argument of each (lua/verbs/exchange.lua), by their text: there are few, with the
-- same meaning in each call.
local kinds = {}

local function end_kind(text)
  local kind = kinds[text]
  if kind then return kind end
  local target, field, discarded, wants = string.match(text, '^(%a+) (%w+) (%d) (%d)$')
  kind = { target = target, field = field, discarded = discarded == '1', wants = wants == '1', delayed = target == 'delayed' }
  kinds[text] = kind
  return kind
end

return end_kind
