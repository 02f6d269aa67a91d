-- Healthy: the controller serves the pool. It looks at conditions alone, with
-- nothing of Lua but its base library.
local function condition(name)
  if obj.status ~= nil and obj.status.conditions ~= nil then
    for _, c in ipairs(obj.status.conditions) do
      if c.type == name then
        return c
      end
    end
  end
  return nil
end

local ready = condition("Ready")
if ready == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "the executor controller has not looked at this spec yet"}
end
if ready.status == "True" then
  local unsupported = condition("Unsupported")
  if unsupported ~= nil and unsupported.status == "True" then
    return {status = "Healthy", message = ready.message .. "; " .. unsupported.message}
  end
  return {status = "Healthy", message = ready.message}
end
if ready.status == "Unknown" then
  return {status = "Progressing", message = ready.message}
end
return {status = "Degraded", message = ready.reason .. ": " .. ready.message}
