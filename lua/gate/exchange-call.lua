local grants = use 'gate/grants'

-- A call of lua/verbs/exchange, as gate/departure has it. Its own key and first arguments.
local function exchange_call(key, identity, horizon, grant, memo_ms, unshaped)
  return {
    key = key, base = string.sub(key, 1, -11), identity = identity, horizon = tonumber(horizon), grant = grant,
    caller = grants.worker(grant), memo_ms = memo_ms,
    allows_unshaped = unshaped ~= '0', is_plain = unshaped == 'plain',
  }
end

return exchange_call
