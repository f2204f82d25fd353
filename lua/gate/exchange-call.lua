local grants = use 'gate/grants'
local shapes = use 'shape/shapes'

-- A call of lua/verbs/exchange, as gate/departure has it. Its own key and first arguments.
local function exchange_call(key, identity, horizon, grant, memo_ms, unshaped)
  local shape_id, revision = shapes.identity_parts(identity)
  return {
    key = key, base = string.sub(key, 1, -11), identity = identity, shape_id = shape_id, revision = revision,
    horizon = tonumber(horizon), grant = grant, caller = grants.worker(grant), memo_ms = memo_ms,
    allows_unshaped = unshaped ~= '0', is_plain = unshaped == 'plain',
  }
end

return exchange_call
